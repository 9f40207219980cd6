"""Three hospitals with different organs, out of OrganAMNIST; or with different digits."""

import os
import sys
from pathlib import Path

import numpy as np
import tomli_w

from fedadb import datasets
from fedadb.core.data import Examples

ROWS = 1500  # of a site, at most


def part(examples: Examples, classes: list[int], rows: int | None) -> tuple[np.ndarray, np.ndarray]:
    chosen = np.flatnonzero(np.isin(examples.y.numpy(), classes))
    chosen = np.random.default_rng(0).permutation(chosen)[:rows]
    return examples.x[chosen].permute(0, 2, 3, 1).numpy(), examples.y[chosen].numpy()


def main(place: Path) -> None:
    name = "organamnist" if datasets.present("organamnist") else "digits"
    splits = datasets.load(name)
    groups = np.array_split(np.arange(len(splits.classes)), 3)
    for k, group in enumerate(groups):
        # A class of the next site as well: hospitals overlap a little.
        classes = [*group.tolist(), int(groups[(k + 1) % 3][0])]
        site = place / f"hospital-{k}"
        site.mkdir(parents=True, exist_ok=True)
        x, y = part(splits.train, classes, ROWS)
        test_x, test_y = part(splits.test, classes, None)
        np.savez(
            site / "images.npz",
            x_train=x,
            y_train=y,
            x_test=test_x,
            y_test=test_y,
            classes=np.array(splits.classes),
        )
        held = ", ".join(splits.classes[c] for c in classes)
        print(f"hospital-{k}: {len(y)} images to train on, of {held}")
    experiment = {
        "dataset": name,
        "rounds": int(os.environ.get("ROUNDS", "20")),
        "local": {"epochs": 2, "batch_size": 64, "lr": 0.03},
        "federation": {"clients": 3, "participation": 1.0},
        "algorithm": "fedadb",
        "deployment": {"evaluate": "both", "wait": 120.0, "deadline": 120.0},
    }
    (place / "experiment.toml").write_text(tomli_w.dumps(experiment))


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
