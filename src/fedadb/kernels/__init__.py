"""Kernels of our own for small convolutions, compiled where they run."""
