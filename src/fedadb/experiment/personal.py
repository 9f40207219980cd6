"""What a run records of its clients' personal models."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, pstdev

from fedadb.storage.files import write_atomically
from fedadb.storage.records import Record
from fedadb.storage.run_directory import personal_file

Accuracies = Mapping[str, Sequence[float]]
"""The accuracy of each client, by kind of model: "global", "tuned" and perhaps "head"."""


def personal_record(accuracies: Accuracies) -> Record:
    """The mean, the worst tenth and the spread over clients, for each kind of model."""
    record: Record = {}
    for kind, of_clients in accuracies.items():
        known = [accuracy for accuracy in of_clients if not math.isnan(accuracy)]
        record[f"personal_{kind}_mean"] = fmean(known) if known else math.nan
        record[f"personal_{kind}_worst"] = worst_tenth(known) if known else math.nan
        record[f"personal_{kind}_spread"] = pstdev(known) if known else math.nan
    return record


def worst_tenth(values: Sequence[float]) -> float:
    """The mean of the lowest tenth of the values, whose number is rounded up."""
    return fmean(sorted(values)[: math.ceil(len(values) / 10)])


def write_accuracies(directory: Path, t: int, accuracies: Accuracies) -> None:
    """Write the accuracy of each client after round t; null where there is none."""
    plain = {
        kind: [None if math.isnan(accuracy) else accuracy for accuracy in of_clients]
        for kind, of_clients in accuracies.items()
    }
    write_atomically(personal_file(directory, t), json.dumps(plain).encode())
