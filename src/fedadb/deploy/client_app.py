"""The site's side: unpack what came, train on what lies here, pack the reply.

The same whether Flower's simulation, its SuperNode or ours calls it. What the site is, its node's
configuration says: `data` and `state`, or in simulations `partition-id`.
"""

import functools
import json
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from torch import Tensor

from fedadb.core.algorithm import Weights
from fedadb.core.data import Examples, Shard
from fedadb.core.errors import BadInput
from fedadb.core.packing import pack, unpack
from fedadb.core.stream import Stream
from fedadb.core.task import Task
from fedadb.deploy import remembered, site_data, wire
from fedadb.deploy.remembered import InDirectory, InState, Remembered
from fedadb.deploy.task import require_same, settings
from fedadb.engine.cohorts import train_client
from fedadb.engine.evaluate import TestSet, mixed_order
from fedadb.engine.local import Learner
from fedadb.experiment.build import World, build, model, pick_device
from fedadb.experiment.config import Experiment, parse_toml

app = ClientApp()


class Site(NamedTuple):
    """What is here: a learner, and what it learns from."""

    learner: Learner[Any, Any, Any]
    shard: Shard
    test: Examples | None  # none in simulations, where the server has all there is
    sent: type[Any]
    memory: type[Any]


@app.query()
def introduce(message: Message, context: Context) -> Message:
    """Who this is and how many rows it has, if it can take part at all."""
    _, here = _here(message, context)
    here.learner.require_usable(here.shard)
    config = context.node_config
    said = {
        "site": str(config.get("site", "")),
        "partition": int(config.get("partition-id", -1)),
        "rows": len(here.shard),
    }
    return Message(wire.content(said), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    order, here = _here(message, context)
    layout = here.learner.f.layout
    sent = unpack(here.sent, _tensors(message, here), layout)
    known = _remembered(order, context)
    kept = known.get(order.used)  # none before the first round
    memory = None if kept is None else unpack(here.memory, wire.from_bytes(kept), layout)
    rng = Stream(int(order.settings["seed"]))
    reply, memory = train_client(
        here.learner, here.shard, sent, order.client, memory, order.round, rng
    )
    if packed := pack(memory):
        remembered.keep(known, order.used, order.round.t, wire.to_bytes(packed))
    return Message(wire.content({}, wire.payload(pack(reply))), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """The sum of the losses on the site's test images; by class, how many are right and there."""
    _, here = _here(message, context)
    if here.test is None or not len(here.test.y):
        raise BadInput("deployment.evaluate: this site has no test images of its own")
    f, plan = here.learner.f, here.learner.plan
    w = unpack(Weights, _tensors(message, here), f.layout).w
    exam = TestSet(f, here.test, here.shard.transform, plan.batch_size)
    batches = [exam.batch(w, i) for i in range(len(exam))]
    said = {
        "loss": sum(loss for loss, _ in batches),
        "right": [sum(right) for right in zip(*(right for _, right in batches), strict=True)],
        "rows": exam.counts,
    }
    return Message(wire.content(said), reply_to=message)


def _tensors(message: Message, here: Site) -> dict[str, Tensor]:
    device = here.shard.rows.device
    return {name: t.to(device) for name, t in wire.tensors_of(message.content).items()}


def _here(message: Message, context: Context) -> tuple[wire.Order, Site]:
    torch.set_num_threads(int(context.node_config.get("threads", 1)))
    order = wire.order_of(message.content)
    text = str(context.run_config["experiment"])
    require_same(settings(_experiment(text)), order.settings)
    partition = int(context.node_config.get("partition-id", -1))
    data = str(context.node_config.get("data", ""))
    if not data and partition < 0:
        raise BadInput("this site has no data: its configuration must say data = 'folder:PATH'")
    return order, _site(text, json.dumps(order.task), data, partition)


@functools.lru_cache(maxsize=1)
def _experiment(text: str) -> Experiment:
    return Experiment.read(parse_toml(text, "the experiment"))


@functools.lru_cache(maxsize=4)  # a simulation's process stands for several sites
def _site(text: str, task_text: str, data: str, partition: int) -> Site:
    e, task = _experiment(text), Task.read(json.loads(task_text))
    device = pick_device(e.engine.device)
    f = model(e, task.transform.domain(task.shape), len(task.classes), device)
    test = None
    if data:
        train, held_out = site_data.load(data, task)
        test = held_out.rows(mixed_order(len(held_out.y))).to(device)
        rows = torch.arange(len(train.y), device=device)
        shard = Shard(train.to(device), rows, len(task.classes), task.transform)
    else:
        shard = _world(text).shards[partition]
    # As in all packing, the annotations are the schema.
    sent = get_type_hints(type(e.algorithm).broadcast)["return"]
    memory = type(e.algorithm.memory(f.weights()))
    return Site(Learner(e.algorithm, f, e.local), shard, test, sent, memory)


@functools.lru_cache(maxsize=1)
def _world(text: str) -> World:
    return build(_experiment(text))


def _remembered(order: wire.Order, context: Context) -> Remembered:
    if directory := context.node_config.get("state"):
        return InDirectory(Path(str(directory)), order.run)
    return InState(context.state)
