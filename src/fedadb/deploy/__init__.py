"""Clients on other machines."""
