"""Trains clients on the machines of a Ray cluster."""
