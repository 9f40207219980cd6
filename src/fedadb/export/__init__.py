"""Exports the classifier of a run to one file, and classifies images with such a file."""
