"""The workload of all simulators: the same data, model, clients and steps.

This module imports only torch and numpy, so every simulator can use it in its own environment.
"""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass(frozen=True)
class Workload:
    model: str = "lenet"  # or "resnet18"
    clients: int = 100
    sampled: int = 5
    rows: int = 600  # of each client
    test: int = 10_000  # rows to evaluate on after each round
    epochs: int = 5
    batch: int = 128
    lr: float = 0.03
    momentum: float = 0.9
    rounds: int = 10

    @staticmethod
    def from_environment() -> "Workload":
        """The workload that the variable WORKLOAD describes, as JSON."""
        return Workload(**json.loads(os.environ.get("WORKLOAD", "{}")))

    @property
    def shape(self) -> tuple[int, int, int]:
        return (1, 28, 28) if self.model == "lenet" else (3, 32, 32)

    def data(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Training images and labels, then test images and labels, as bytes.

        An image is noise plus the pattern of its class. A fifth of the labels are random, so the
        best possible accuracy is 0.82, and every simulator must reach it.
        """
        rng = np.random.default_rng(0)
        patterns = rng.integers(256, size=(10, *self.shape))
        parts: list[np.ndarray] = []
        for size in (self.clients * self.rows, self.test):
            y = rng.integers(10, size=size)
            x = rng.integers(256, size=(size, *self.shape), dtype=np.uint8)
            x = ((x.astype(np.uint16) + patterns[y]) // 2).astype(np.uint8)
            parts += [x, np.where(rng.random(size) < 0.2, rng.integers(10, size=size), y)]
        return parts[0], parts[1], parts[2], parts[3]

    def rows_of(self, k: int) -> slice:
        return slice(k * self.rows, (k + 1) * self.rows)

    def chosen(self, t: int) -> list[int]:
        rng = np.random.default_rng(t)
        return [int(k) for k in rng.choice(self.clients, self.sampled, replace=False)]

    def module(self) -> nn.Module:
        torch.manual_seed(0)
        return lenet() if self.model == "lenet" else resnet18()


def normalised(x: np.ndarray | Tensor) -> Tensor:
    return (torch.as_tensor(x).float() / 255 - 0.5) / 0.5


def report(seconds: list[float], accuracy: float) -> None:
    """Print the result, as the last line: the seconds of each round, and the final accuracy."""
    print(json.dumps({"seconds": seconds, "accuracy": accuracy}), flush=True)


class Clock:
    """Measures the seconds between ticks."""

    def __init__(self) -> None:
        self.last = time.perf_counter()
        self.seconds: list[float] = []

    def tick(self) -> None:
        now = time.perf_counter()
        self.seconds.append(now - self.last)
        self.last = now


def train(f: nn.Module, data: TensorDataset, work: Workload) -> None:
    """A client's local training, as in most research code."""
    optimiser = torch.optim.SGD(f.parameters(), lr=work.lr, momentum=work.momentum)
    for _ in range(work.epochs):
        for x, y in DataLoader(data, batch_size=work.batch, shuffle=True):
            optimiser.zero_grad()
            F.cross_entropy(f(x), y).backward()
            optimiser.step()


def accuracy(f: nn.Module, batches: Iterator[tuple[Tensor, Tensor]]) -> float:
    f.eval()
    hits = n = 0
    with torch.no_grad():
        for x, y in batches:
            hits += int((f(x).argmax(1) == y).sum())
            n += len(y)
    f.train()
    return hits / n


def lenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs, track_running_stats=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs, track_running_stats=False)
        self.shortcut = nn.Sequential()
        if stride != 1:
            self.shortcut.append(nn.Conv2d(inputs, outputs, 1, stride, bias=False))
            self.shortcut.append(nn.BatchNorm2d(outputs, track_running_stats=False))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def resnet18() -> nn.Module:
    blocks: list[nn.Module] = []
    inputs = 64
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        blocks += [Block(inputs, width, stride), Block(width, width, 1)]
        inputs = width
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1, bias=False),
        nn.BatchNorm2d(64, track_running_stats=False),
        nn.ReLU(),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(512, 10),
    )
