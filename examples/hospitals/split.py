"""Give three hospitals images of different organs, from OrganAMNIST; or of different digits."""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

import fedadb
from fedadb import datasets

MAX_ROWS = 1500  # training images per hospital
NORM = 2.0  # of an update with --private; without it, two thirds of a run's updates are longer


def images_of(
    examples: fedadb.Examples, classes: list[int], rows: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """At most `rows` images of these classes, with channels last, and their labels."""
    chosen = np.flatnonzero(np.isin(examples.y.numpy(), classes))
    chosen = np.random.default_rng(0).permutation(chosen)[:rows]
    return examples.x[chosen].permute(0, 2, 3, 1).numpy(), examples.y[chosen].numpy()


def main(directory: Path, private: bool) -> None:
    name = "organamnist" if datasets.present("organamnist") else "digits"
    splits = datasets.load(name)
    groups = np.array_split(np.arange(len(splits.classes)), 3)
    for k, group in enumerate(groups):
        # Each hospital also has one class of the next one.
        classes = [*group.tolist(), int(groups[(k + 1) % 3][0])]
        hospital = directory / f"hospital-{k}"
        hospital.mkdir(parents=True, exist_ok=True)
        x_train, y_train = images_of(splits.train, classes, MAX_ROWS)
        x_test, y_test = images_of(splits.test, classes, None)
        np.savez(
            hospital / "images.npz",
            x_train=x_train,
            y_train=y_train,
            x_test=x_test,
            y_test=y_test,
            classes=np.array(splits.classes),
        )
        names = ", ".join(splits.classes[c] for c in classes)
        print(f"hospital-{k}: {len(y_train)} training images of {names}")
    experiment: dict[str, Any] = {
        "dataset": name,
        "rounds": int(os.environ.get("ROUNDS", "20")),
        "local": {"epochs": 2, "batch_size": 64, "lr": 0.03},
        "federation": {"clients": 3, "participation": 1.0},
        "algorithm": "fedadb",
        "deployment": {"evaluate": "both", "wait": 600.0, "deadline": 600.0},
    }
    if private:
        experiment["filter"] = [{"name": "clip", "norm": NORM}]
        experiment["deployment"]["secure_aggregation"] = True
    (directory / "experiment.toml").write_text(tomli_w.dumps(experiment))


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), private="--private" in sys.argv)
