"""Federations of real sites, on Flower."""
