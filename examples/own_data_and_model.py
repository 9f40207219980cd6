"""A federation on your own tensors and your own nn.Module.

python examples/own_data_and_model.py
"""

from typing import Any

import torch
from torch import nn

import fedadb

CLASSES, FEATURES = 4, 10


def my_data(rows: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Four classes around four centres in ten dimensions."""
    rng = torch.Generator().manual_seed(seed)
    y = torch.randint(CLASSES, (rows,), generator=rng)
    return 2 * torch.eye(CLASSES, FEATURES)[y] + 0.7 * torch.randn(rows, FEATURES, generator=rng), y


def show(record: dict[str, Any]) -> None:
    print(f"round {record['round']:2}  accuracy {record['accuracy']:.3f}")


def main() -> float:
    data = fedadb.Data(*my_data(2000, seed=0), *my_data(500, seed=1))
    torch.manual_seed(0)  # of the module's initial weights; all else follows from the experiment
    # Your module computes features; the algorithm adds its classifier on top.
    body = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU())
    history = fedadb.simulate(
        "fedavg", body, data, rounds=20, observers=[show],
        federation={"clients": 8, "participation": 0.4, "partition": {"alpha": 0.3}},
        local={"epochs": 1, "batch_size": 32, "lr": 0.05},
    )  # fmt: skip
    return history.accuracy[-1]


if __name__ == "__main__":
    main()
