"""The site's part of a federation: train on the site's data, and evaluate on its test images.

It is the same under Flower's simulation, Flower's SuperNode and our own node. The node's
configuration says what the site is: `data` and `state`, or `partition-id` in simulations.
"""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from torch import Tensor

from fedadb.core.algorithm import broadcast_kind
from fedadb.core.data import DataSpec, Examples, Shard
from fedadb.core.errors import BadInput, Fault
from fedadb.core.packing import kind_of, pack, unpack
from fedadb.core.stream import Stream
from fedadb.core.vector import Weights
from fedadb.datasets.own import load_own
from fedadb.deploy import messages, refusals
from fedadb.deploy.delivery import QUERY
from fedadb.deploy.messages import Request, make_content, tensor_record
from fedadb.deploy.refusals import Refusal
from fedadb.deploy.site_memory import FileMemory, NodeStateMemory, SiteMemory, store_memory
from fedadb.deploy.site_rules import (
    MAX_RUNS,
    count_request,
    read_request,
    read_spec,
    require_finite,
    require_known_type,
)
from fedadb.engine.cohorts import train_client
from fedadb.engine.evaluate import TestSet, mixed_order
from fedadb.engine.local import Learner, memory_tensors
from fedadb.experiment.build import (
    FederatedData,
    build_data,
    build_model,
    make_learner,
    pick_device,
)
from fedadb.experiment.config import Experiment
from fedadb.experiment.toml_tables import parse_toml


class SiteApp(ClientApp):
    """Answers every message; the answer to one that fails contains none of the site's data."""

    def __call__(self, message: Message, context: Context) -> Message:
        try:
            require_known_type(message.metadata.message_type)
            return super().__call__(message, context)
        except Exception as error:  # whatever a server sends, the site continues
            return refusals.answer(message, error)


app = SiteApp()
Tree = TypeVar("Tree")


class SiteLearner(NamedTuple):
    """The site's learner and data, and the types of what it receives and remembers."""

    learner: Learner[Any, Any, Any, Any]
    shard: Shard
    test: Examples | None  # None in simulations, where the server has all test data
    broadcast: type[Any]
    memory: Any

    def to_device(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: t.to(self.shard.rows.device) for name, t in tensors.items()}


@app.query()
def introduce(message: Message, context: Context) -> Message:
    """Reply with the site's name and number of rows, if it can take part."""
    _, site = _prepare(message, context)
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
    sent = _unpack(site.broadcast, message, site)
    memories = _memories(request, context)
    memory = None  # as before the first round
    if stored := memories.get(request.last_used):
        tensors = memory_tensors(messages.tensors_from_bytes(stored))
        memory = unpack(site.memory, tensors, site.learner.f.layout)
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
        raise Refusal(
            refusals.NO_TEST_IMAGES,
            "deployment.evaluate: this site has no test images of its own",
            travels=True,
        )
    f, plan = site.learner.f, site.learner.plan
    w = _unpack(Weights, message, site).w
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
    config = context.node_config
    torch.set_num_threads(int(config.get("threads", 1)))
    experiment, kind = str(context.run_config["experiment"]), message.metadata.message_type
    e = _experiment(experiment)
    request = read_request(message.content, kind, e)
    spec = read_spec(request.data, e)
    if kind != QUERY and "state" in config:
        max_runs = int(config.get("max-runs", MAX_RUNS))
        count_request(Path(str(config["state"])), kind, request, e, max_runs)
    partition, data = int(config.get("partition-id", -1)), str(config.get("data", ""))
    if not data and partition < 0:
        raise Refusal(
            refusals.NO_DATA,
            "this site has no data: its node configuration must set data='folder:PATH'",
            travels=True,
        )
    return request, _site_learner(experiment, spec, data, partition)


def _unpack(kind: type[Tree], message: Message, site: SiteLearner) -> Tree:
    """The tree of tensors that the server sent, or a Refusal."""
    f = site.learner.f
    try:
        tensors = messages.tensors_in(message.content)
        require_finite(tensors, f.weights().flat.dtype)
        return unpack(kind, site.to_device(tensors), f.layout)
    except Fault as error:
        raise Refusal(refusals.BAD_REQUEST, str(error), travels=True) from error


@functools.lru_cache(maxsize=1)
def _experiment(toml: str) -> Experiment:
    return Experiment.read(parse_toml(toml, "the experiment"))


@functools.lru_cache(maxsize=4)  # in a simulation, one process serves several sites
def _site_learner(toml: str, spec: DataSpec, data: str, partition: int) -> SiteLearner:
    e = _experiment(toml)
    device = pick_device(e.engine.device)
    f = build_model(e, spec)
    test = None
    if data:
        try:
            train, test = load_own(data, spec)
        except BadInput as error:
            raise Refusal(refusals.BAD_DATA, str(error)) from error
        test = test.rows(mixed_order(len(test.y))).to(device)
        rows = torch.arange(len(train.y), device=device)
        shard = Shard(train.to(device), rows, len(spec.classes), spec.transform)
    else:
        shard = _federated_data(toml).shards[partition]
    learner = make_learner(e, f)
    memory = kind_of(learner.first_memory(f.weights()))
    try:
        learner.require_usable(shard)
    except BadInput as error:
        raise Refusal(refusals.NO_DATA, str(error)) from error
    return SiteLearner(learner, shard, test, broadcast_kind(e.algorithm), memory)


@functools.lru_cache(maxsize=1)
def _federated_data(toml: str) -> FederatedData:
    return build_data(_experiment(toml))


def _memories(request: Request, context: Context) -> SiteMemory:
    if directory := context.node_config.get("state"):
        return FileMemory(Path(str(directory)), request.run)
    return NodeStateMemory(context.state)
