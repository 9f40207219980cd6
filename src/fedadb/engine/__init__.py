"""What runs a federation: clients' rounds, the loop, evaluation, records and checkpoints."""
