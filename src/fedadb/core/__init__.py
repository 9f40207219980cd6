"""The mathematics every method shares. Imports torch, and nothing of the rest of fedadb."""
