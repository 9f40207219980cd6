"""Secure aggregation: the server learns the sum of all clients' numbers, and no client's own."""
