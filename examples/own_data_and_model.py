"""A federation on your own tensors and your own nn.Module.

python examples/own_data_and_model.py
"""

import torch
from torch import nn

import fedadb

CLIENTS, CLASSES, FEATURES, ROUNDS = 8, 4, 10, 20


def my_data(rows: int, seed: int) -> fedadb.Examples:
    """Four classes around four centres in ten dimensions; any float tensor works."""
    rng = torch.Generator().manual_seed(seed)
    y = torch.randint(CLASSES, (rows,), generator=rng)
    centres = 2 * torch.eye(CLASSES, FEATURES)
    return fedadb.Examples(centres[y] + 0.7 * torch.randn(rows, FEATURES, generator=rng), y)


def my_shards(train: fedadb.Examples) -> list[fedadb.Shard]:
    """Clients that hold two of the four classes each; two clients share each pair of classes."""
    shards = []
    for k in range(CLIENTS):
        held = (train.y == k % CLASSES) | (train.y == (k + 1) % CLASSES)
        rows = torch.nonzero(held).flatten()[k // CLASSES :: 2]
        shards.append(fedadb.Shard(train, rows, CLASSES, fedadb.AsIs()))
    return shards


def main() -> float:
    train, test = my_data(2000, seed=0), my_data(500, seed=1)
    shards = my_shards(train)
    rng = fedadb.Stream(seed=0)  # all random numbers below follow from this seed

    # Your module computes features; the algorithm adds its classifier on top.
    with rng.at("body").seeded():
        body = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU())
    algorithm = fedadb.FedAvg()
    domain = fedadb.Domain.unbounded((FEATURES,))
    f = fedadb.assemble(body, algorithm.heads, domain, CLASSES, rng)

    def choose(t: int) -> list[int]:
        """Three random clients of round t."""
        chosen: list[int] = rng.at("sampling", t).numpy().choice(CLIENTS, 3, replace=False).tolist()
        return chosen

    learner = fedadb.Learner(algorithm, f, fedadb.LocalPlan(epochs=1, batch_size=32, lr=0.05))
    cohort = fedadb.OneByOne(learner, shards, rng)
    before = fedadb.Round(t=0, total=ROUNDS, clients=CLIENTS, examples=len(train.y))
    start = fedadb.Snapshot(before, algorithm.init(f.weights()))
    accuracy = 0.0
    for now in fedadb.federate(learner, cohort, choose=choose, rng=rng, start=start):
        w = algorithm.deployed(now.server)
        accuracy = fedadb.evaluate(f, w, test, fedadb.AsIs(), batch_size=100).accuracy
        print(f"round {now.round.t:2}  clients {now.clients}  accuracy {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
