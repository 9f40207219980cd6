"""Searches for holes: kills, fuzzing, hostile participants, bad networks and load."""
