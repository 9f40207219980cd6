"""What each filter adds to a round of ten clients, with LeNet and with ResNet-18.

    python -m benchmarks.filter_cost [--models lenet,resnet18]

A round is what the clients train one after the other: ten with 500 images each, five epochs, in
batches of 128. That is 200 steps. The benchmark times a few of them and multiplies. A filter's time
is that of its ten clients' ends and of its server's end. `dp` has the noise of a simulation; that
of real sites is also timed by itself. One thread; the best of several turns.
"""

import argparse
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.algorithm import Round
from fedadb.core.filter import Filter, receive_through, restore, send_through
from fedadb.core.model import Model, assemble
from fedadb.core.replies import Reply
from fedadb.core.stream import Stream
from fedadb.core.transform import Transform
from fedadb.core.vector import Vector, Weights
from fedadb.deploy.secret_random import normals
from fedadb.experiment.config import Experiment
from fedadb.filters.dp import DP
from fedadb.filters.mechanism import Mechanism, SimulatedNoise
from fedadb.kernels.selection import select_body
from fedadb.models import MODELS

CLIENTS, STEPS, BATCH = 10, 200, 128
SHAPES = {"lenet": (1, 28, 28), "resnet18": (3, 32, 32)}
TURNS = {"lenet": 5, "resnet18": 2}
TIMED_STEPS = {"lenet": 20, "resnet18": 2}
FILTERS: list[list[dict[str, Any]]] = [
    [{"name": "clip", "norm": 1.0}],
    [{"name": "clip", "quantile": 0.5}],
    [{"name": "norm_bound", "norm": 1e9}],
    [{"name": "median"}],
    [{"name": "trimmed_mean"}],
    [{"name": "multi_krum"}],
    [{"name": "geometric_median"}],
    [{"name": "centred_clip"}],
    [{"name": "nnm"}, {"name": "trimmed_mean"}],
    [{"name": "int8"}],
    [{"name": "top_k"}],
    [{"name": "dp", "norm": 1.0, "noise": 1.0}],
]


def make_model(name: str) -> Model:
    shape = SHAPES[name]
    channels = (0.5,) * shape[0]
    body = MODELS[name]().body(shape)
    domain = Transform(mean=channels, std=channels).domain(shape)
    f = assemble(body, FedAvg().heads, domain, 10, Stream(0))
    return replace(f, fast_body=select_body(body, shape))


def best_of(turns: int, work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(turns):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def round_seconds(name: str, f: Model) -> float:
    """The time of all steps of a round, from that of a few."""
    w, x = f.weights(), torch.randn(BATCH, *SHAPES[name])
    y = torch.arange(BATCH) % 10

    def steps() -> None:
        for _ in range(TIMED_STEPS[name]):
            parameters = Vector(w.flat.clone().requires_grad_(), w.layout)
            loss = F.cross_entropy(f(parameters, x).logits, y)
            torch.autograd.grad(loss, parameters.flat)

    return best_of(TURNS[name], steps) / TIMED_STEPS[name] * STEPS


def filter_seconds(filters: tuple[Filter, ...], u: Vector, turns: int) -> float:
    """The time of ten clients' ends and of the server's end."""
    rng = torch.Generator().manual_seed(0)
    updates = [0.01 * torch.randn(u.flat.shape, generator=rng) for _ in range(CLIENTS)]
    replies = [
        Reply(Weights(Vector(u.flat + update, u.layout)), torch.tensor(500), {})
        for update in updates
    ]
    memories = [[one.memory(u) for one in filters] for _ in range(CLIENTS)]
    states = [one.init(u) for one in filters]
    now = Round(1, 2, CLIENTS, 500 * CLIENTS)
    noise = Mechanism(1.0, 1.0, CLIENTS, SimulatedNoise(Stream(0)))

    def work() -> None:
        sent = [
            send_through(filters, reply, memory, u, now, Stream(0).at("client", k))[0]
            for k, (reply, memory) in enumerate(zip(replies, memories, strict=True))
        ]
        restored = (restore(filters, reply, u) for reply in sent)
        received = receive_through(filters, restored, list(states), u, now)
        usable = (reply for reply in received if isinstance(reply, Reply))
        if any(isinstance(one, DP) for one in filters):
            noise.release(usable, noise.init(), u, now.t)
        else:
            deque(usable, maxlen=0)

    return best_of(turns, work)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default="lenet,resnet18")
    torch.set_num_threads(1)
    for name in parser.parse_args().models.split(","):
        f = make_model(name)
        whole = round_seconds(name, f)
        print(f"{name}: {f.weights().flat.numel()} numbers, a round takes {whole:.2f} s")
        for table in FILTERS:
            filters = Experiment(
                federation={"clients": CLIENTS, "participation": 1.0},
                algorithm="fedavg",
                filter=table,
            ).filter
            seconds = filter_seconds(filters, f.weights(), TURNS[name])
            shown = " + ".join(one["name"] for one in table)
            if "quantile" in table[0]:
                shown += " by quantile"
            print_share(shown, seconds, whole)
        seconds = best_of(TURNS[name], partial(normals, bytes(32), f.weights().flat.numel()))
        print_share("noise of real sites", seconds, whole)


def print_share(what: str, seconds: float, whole: float) -> None:
    print(f"  {what:24} {seconds:8.3f} s {100 * seconds / whole:7.2f} % of a round")


if __name__ == "__main__":
    main()
