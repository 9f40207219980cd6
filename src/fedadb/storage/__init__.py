"""Files on disk: atomic writes, locks, a run's directory, its records and its tensors."""
