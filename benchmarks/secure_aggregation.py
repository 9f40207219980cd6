"""What secure aggregation adds to a round, without the network: seconds and bytes.

    python benchmarks/secure_aggregation.py [--sites 3 10] [--repeats 9]

A site encodes its update, masks it, and writes it to the disk. The server adds the words of all
sites and decodes their sum. Without secure aggregation, neither does any of that: the server takes
a mean, which is stated beside it. One thread; the shortest of the repeats, because other programs
only add to it.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from fedadb.algorithms.fedadb import FedADB
from fedadb.core.algorithm import Algorithm
from fedadb.core.model import Domain, assemble
from fedadb.core.packing import size
from fedadb.core.replies import Reply, average
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector, Weights
from fedadb.deploy.masked_answers import write_durably
from fedadb.deploy.messages import tensors_to_bytes
from fedadb.models import Architecture
from fedadb.models.lenet import LeNet
from fedadb.models.resnet import ResNet18
from fedadb.secagg.fixed_point import Coding, Words
from fedadb.secagg.keys import make_private_key, pair_keys, public_key
from fedadb.secagg.masks import Exchange, mask
from fedadb.secagg.reply_words import mean_reply, reply_words, word_count

ROWS = 1500  # of each site
CLASSES = 11
MODELS: dict[str, tuple[Architecture, tuple[int, ...]]] = {
    "lenet": (LeNet(), (1, 28, 28)),
    "resnet18": (ResNet18(), (3, 32, 32)),
}


class Cost(NamedTuple):
    """Seconds of one site and of the server in a round, and bytes of an upload."""

    encode: float
    mask: float
    store: float
    server: float
    plain_mean: float
    bytes: int
    plain_bytes: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, nargs="*", default=[3, 10])
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("seconds per round; FedADB's two heads and four measurements")
    heads = ("encode", "mask", "write", "sum+decode", "plain mean", "MB up", "plain MB")
    print(f"{'model':>9} {'sites':>5} " + " ".join(f"{head:>10}" for head in heads))
    for name in MODELS:
        for sites in options.sites:
            cost = measure(weights_of(name), sites, options.repeats)
            times = " ".join(f"{seconds:10.4f}" for seconds in cost[:5])
            print(f"{name:>9} {sites:5} {times} {cost.bytes / 1e6:10.4f} "
                  f"{cost.plain_bytes / 1e6:10.4f}")  # fmt: skip


def weights_of(name: str) -> Vector:
    """The weights of a model with FedADB's heads."""
    architecture, shape = MODELS[name]
    algorithm: Algorithm[Any, Any, Any, Any] = FedADB()
    domain = Domain(shape, torch.zeros(shape[0], 1, 1), torch.ones(shape[0], 1, 1))
    body = architecture.body(shape)
    return assemble(body, algorithm.heads, domain, CLASSES, Stream(0)).weights()


def measure(u: Vector, sites: int, repeats: int) -> Cost:
    """The cost for weights u at so many sites."""
    names, run, measures = [f"site-{k}" for k in range(sites)], "00" * 16, FedADB.measures
    private = {name: make_private_key() for name in names}
    public = {name: public_key(key) for name, key in private.items()}
    pairs = pair_keys(run, names[0], private[names[0]], public)
    coding = Coding(sites, sites * ROWS, 1.0)
    count = word_count(u, measures)
    exchange = Exchange(run, tuple(names), 1, 0, "00" * 32, coding.scale, count)
    rng = torch.Generator().manual_seed(0)
    w = u + Vector(0.01 * torch.randn(u.flat.shape, generator=rng), u.layout)
    measured = {name: torch.tensor(0.5) for name in measures}
    reply: Reply[Any] = Reply(Weights(w), torch.tensor(ROWS), measured)

    encode, plain = timed(lambda: reply_words(reply, u, coding, measures), repeats)
    masking, words = timed(lambda: mask(plain, names[0], pairs, exchange), repeats)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "answer"
        data = tensors_to_bytes({"masked": torch.from_numpy(words)})
        store, _ = timed(lambda: write_durably(path, data), repeats)
    server, _ = timed(lambda: decode(plain, u, coding), repeats)
    mean, _ = timed(lambda: average([reply] * sites), repeats)
    return Cost(encode, masking, store, server, mean, words.nbytes, size(reply))


def decode(words: Words, u: Vector, coding: Coding) -> Reply[Any]:
    """What the server does; how large the words are does not matter for that."""
    total = np.zeros_like(words)
    for _ in range(coding.clients):
        total += words
    return mean_reply(total, u, coding, FedADB.measures)


def timed(action: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """The shortest seconds of an action, and its result."""
    seconds, result = [], None
    for _ in range(repeats):
        began = time.perf_counter()
        result = action()
        seconds.append(time.perf_counter() - began)
    return min(seconds), result


if __name__ == "__main__":
    main()
