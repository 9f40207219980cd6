"""Federations beyond this process: real sites, and more than one machine."""
