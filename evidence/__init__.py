"""The published results: from finished runs to rows, and from rows to the tables of the docs.

python -m evidence collect RUNS… --to docs/results/NAME.csv    one row per run
python -m evidence write                                       the tables, from the rows alone
"""
