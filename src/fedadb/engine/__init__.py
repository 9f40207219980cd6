"""Runs a federation: one client's round, cohorts, the loop, evaluation, checkpoints."""
