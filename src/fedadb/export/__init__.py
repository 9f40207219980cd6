"""A run's model as one file, and what it says to images."""
