"""The mathematics that every method shares. Imports nothing else of fedadb."""
