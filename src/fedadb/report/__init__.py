"""From records to tables and pictures. Reads rounds.jsonl alone, and imports no torch."""
