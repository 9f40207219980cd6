"""Experiments and studies in TOML, and the code of methods that they try."""
