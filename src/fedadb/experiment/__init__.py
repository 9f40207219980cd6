"""From a description in TOML to a run in a directory."""
