"""How the documentation site is made: generated pages, and links that lead out of docs/."""
