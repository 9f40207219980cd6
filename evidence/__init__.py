"""The published results: from studies to rows, and from rows to the tables of the docs.

python -m evidence run STUDY --to docs/results/NAME.csv --out DIR    what the file lacks of a study
python -m evidence collect RUNS… --to docs/results/NAME.csv          one row per run of directories
python -m evidence analyse RUNS… --to docs/results/analyses.csv      Section 6, of finished runs
python -m evidence rounds RUNS… --to docs/results/NAME.csv           one row per round
python -m evidence write                                             tables, figures, from CSV files
"""
