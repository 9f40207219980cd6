"""A federation on embeddings: a frozen network computes features once, and clients train on them.

python examples/embeddings.py
"""

import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import fedadb


def frozen_network() -> nn.Module:
    """A stand-in for a foundation model: random convolutions that are never trained."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
    )


@torch.inference_mode()
def embed(network: nn.Module, images: Tensor) -> Tensor:
    """One row of 256 numbers per image."""
    return torch.cat([network(batch) for batch in torch.split(images, 256)])


def save_embeddings(path: Path) -> None:
    """Done once, and perhaps elsewhere; the network is not needed afterwards."""
    digits = load_digits()
    images = torch.from_numpy(digits.images).float()[:, None] / 16
    labels = torch.from_numpy(digits.target)
    torch.save({"x": embed(frozen_network(), images), "y": labels}, path)


def my_data(path: Path) -> fedadb.Data:
    """The embeddings, standardised on the training rows."""
    saved = torch.load(path, weights_only=True)
    (x_train, x_test), (y_train, y_test) = (torch.split(saved[key], [1400, 397]) for key in "xy")
    mean, std = x_train.mean(0), x_train.std(0) + 1e-6
    x_train, x_test = (x_train - mean) / std, (x_test - mean) / std
    return fedadb.Data(x_train, y_train, x_test, y_test, name="embedded-digits")


def main() -> float:
    best = {}
    with tempfile.TemporaryDirectory() as directory:
        save_embeddings(Path(directory) / "embeddings.pt")
        data = my_data(Path(directory) / "embeddings.pt")
        for algorithm in (fedadb.FedAvg(), fedadb.FedADB()):
            experiment = fedadb.Experiment(
                dataset=data,
                model=fedadb.MLP(hidden=(64,)),
                rounds=15,
                # Ten clients with digits of two kinds each; three of them train in a round.
                federation=fedadb.Federation(10, 0.3, fedadb.Shards(classes=2)),
                local={"epochs": 2, "batch_size": 32, "lr": 0.05},
                algorithm=algorithm,
            )
            name = type(algorithm).__name__
            accuracy = fedadb.run(experiment, out=Path(directory) / name).accuracy
            best[name] = max(accuracy)
            print(f"{name:6}  last round {accuracy[-1]:.3f}  best round {best[name]:.3f}")
    return min(best.values())


if __name__ == "__main__":
    main()
