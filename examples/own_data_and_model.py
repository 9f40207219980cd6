"""A federation on your own tensors and your own nn.Module, from the pieces.

python examples/own_data_and_model.py
"""

import torch
from torch import nn

import fedadb

CLIENTS, CLASSES, FEATURES, ROUNDS = 8, 4, 10, 20


def my_data(rows: int, seed: int) -> fedadb.Examples:
    """Any float tensor will do; here, four clouds in ten dimensions."""
    rng = torch.Generator().manual_seed(seed)
    y = torch.randint(CLASSES, (rows,), generator=rng)
    centres = 2 * torch.eye(CLASSES, FEATURES)
    return fedadb.Examples(centres[y] + 0.7 * torch.randn(rows, FEATURES, generator=rng), y)


def main() -> float:
    train, test = my_data(2000, seed=0), my_data(500, seed=1)

    # Each client holds two of the four classes.
    shards = [
        fedadb.Shard(
            train,
            rows=torch.nonzero((train.y == k % 4) | (train.y == (k + 1) % 4)).flatten()[
                k // 4 :: 2
            ],
            classes=CLASSES,
            transform=fedadb.AsIs(),
        )
        for k in range(CLIENTS)
    ]

    # The body makes features; the algorithm puts its classifier on top.
    rng = fedadb.Stream(seed=0)
    with rng.at("body").seeded():
        body = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU())
    algorithm = fedadb.FedAvg()
    domain = fedadb.Domain.unbounded((FEATURES,))
    f = fedadb.assemble(body, algorithm.heads, domain, CLASSES, rng)

    plan = fedadb.LocalPlan(epochs=1, batch_size=32, lr=0.05)
    learner = fedadb.Learner(algorithm, f, plan)
    before = fedadb.Round(0, ROUNDS, CLIENTS, len(train.y))
    accuracy = 0.0
    for now in fedadb.federate(
        algorithm,
        f,
        fedadb.OneByOne(learner, shards, rng),
        choose=lambda t: rng.at("sampling", t).numpy().choice(CLIENTS, 3, replace=False).tolist(),
        rng=rng,
        start=fedadb.Snapshot(before, algorithm.init(f.weights())),
    ):
        scores = fedadb.evaluate(f, now.server.w, test, fedadb.AsIs(), batch_size=100)
        accuracy = scores.accuracy
        print(f"round {now.round.t:2}  clients {now.clients}  accuracy {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
