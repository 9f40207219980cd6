"""The site's part of a federation: train on the site's data, and evaluate on its test images.

It is the same under Flower's simulation, Flower's SuperNode and our own node. The node's
configuration says what the site is: `data` and `state`, or `partition-id` in simulations.
"""

import functools
import json
from collections.abc import Mapping
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
from fedadb.datasets.own import load_own
from fedadb.deploy import messages
from fedadb.deploy.agreement import require_same_settings, shared_settings
from fedadb.deploy.messages import Request, make_content, tensor_record
from fedadb.deploy.site_memory import FileMemory, NodeStateMemory, SiteMemory, store_memory
from fedadb.engine.cohorts import train_client
from fedadb.engine.evaluate import TestSet, mixed_order
from fedadb.engine.local import Learner
from fedadb.experiment.build import FederatedData, build_data, build_model, pick_device
from fedadb.experiment.config import Experiment, parse_toml
from fedadb.experiment.stored import spec_from_table

app = ClientApp()


class SiteLearner(NamedTuple):
    """The site's learner and data, and the types of what it receives and remembers."""

    learner: Learner[Any, Any, Any]
    shard: Shard
    test: Examples | None  # None in simulations, where the server has all test data
    broadcast: type[Any]
    memory: type[Any]

    def to_device(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: t.to(self.shard.rows.device) for name, t in tensors.items()}


@app.query()
def introduce(message: Message, context: Context) -> Message:
    """Reply with the site's name and number of rows, if it can take part."""
    _, site = _prepare(message, context)
    site.learner.require_usable(site.shard)
    config = context.node_config
    introduction = {
        "site": str(config.get("site", "")),
        "partition": int(config.get("partition-id", -1)),
        "rows": len(site.shard),
    }
    return Message(make_content(introduction), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train one round, and reply with the weights."""
    request, site = _prepare(message, context)
    layout = site.learner.f.layout
    received = site.to_device(messages.tensors_in(message.content))
    sent = unpack(site.broadcast, received, layout)
    memories = _memories(request, context)
    memory = None  # as before the first round
    if stored := memories.get(request.last_used):
        memory = unpack(site.memory, messages.tensors_from_bytes(stored), layout)
    rng = Stream(int(request.settings["seed"]))
    reply, memory = train_client(
        site.learner, site.shard, sent, request.client, memory, request.round, rng
    )
    if packed := pack(memory):
        data = messages.tensors_to_bytes(packed)
        store_memory(memories, request.last_used, request.round.t, data)
    return Message(make_content({}, tensor_record(pack(reply))), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Reply with the summed loss on the site's test images, and with counts per class."""
    _, site = _prepare(message, context)
    if site.test is None or not len(site.test.y):
        raise BadInput("deployment.evaluate: this site has no test images of its own")
    f, plan = site.learner.f, site.learner.plan
    received = site.to_device(messages.tensors_in(message.content))
    w = unpack(Weights, received, f.layout).w
    test_set = TestSet(f, site.test, site.shard.transform, plan.batch_size)
    losses, correct = zip(
        *(test_set.evaluate_batch(w, i) for i in range(len(test_set))), strict=True
    )
    counts = {
        "loss": sum(losses),
        "correct": [sum(column) for column in zip(*correct, strict=True)],
        "rows": test_set.counts,
    }
    return Message(make_content(counts), reply_to=message)


def _prepare(message: Message, context: Context) -> tuple[Request, SiteLearner]:
    """Check the request against the site's own experiment, and load the site's data."""
    torch.set_num_threads(int(context.node_config.get("threads", 1)))
    request = messages.request_in(message.content)
    experiment = str(context.run_config["experiment"])
    require_same_settings(shared_settings(_experiment(experiment)), request.settings)
    partition = int(context.node_config.get("partition-id", -1))
    data = str(context.node_config.get("data", ""))
    if not data and partition < 0:
        raise BadInput("this site has no data: its node configuration must set data='folder:PATH'")
    return request, _site_learner(experiment, json.dumps(request.data), data, partition)


@functools.lru_cache(maxsize=1)
def _experiment(toml: str) -> Experiment:
    return Experiment.read(parse_toml(toml, "the experiment"))


@functools.lru_cache(maxsize=4)  # in a simulation, one process serves several sites
def _site_learner(toml: str, spec_json: str, data: str, partition: int) -> SiteLearner:
    e, spec = _experiment(toml), spec_from_table(json.loads(spec_json))
    device = pick_device(e.engine.device)
    f = build_model(e, spec)
    test = None
    if data:
        train, test = load_own(data, spec)
        test = test.rows(mixed_order(len(test.y))).to(device)
        rows = torch.arange(len(train.y), device=device)
        shard = Shard(train.to(device), rows, len(spec.classes), spec.transform)
    else:
        shard = _federated_data(toml).shards[partition]
    broadcast = get_type_hints(type(e.algorithm).broadcast)["return"]
    memory = type(e.algorithm.memory(f.weights()))
    return SiteLearner(Learner(e.algorithm, f, e.local), shard, test, broadcast, memory)


@functools.lru_cache(maxsize=1)
def _federated_data(toml: str) -> FederatedData:
    return build_data(_experiment(toml))


def _memories(request: Request, context: Context) -> SiteMemory:
    if directory := context.node_config.get("state"):
        return FileMemory(Path(str(directory)), request.run)
    return NodeStateMemory(context.state)
