"""The site's part of a federation: train on the site's data, and evaluate on its test images.

It is the same under Flower's simulation, Flower's SuperNode and our own node. The node's
configuration says what the site is: `data` and `state`, or `partition-id` in simulations.
"""

from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedadb.core.errors import Fault
from fedadb.core.packing import pack, unpack
from fedadb.core.replies import Reply
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector, Weights
from fedadb.deploy import messages, refusals
from fedadb.deploy.agreement import shared_settings
from fedadb.deploy.digests import order_digest, settings_digest
from fedadb.deploy.masked_replies import masked_counts, masked_reply
from fedadb.deploy.messages import (
    END_ACTION,
    KEY_ACTION,
    QUERY,
    ROSTER_ACTION,
    Request,
    bytes_record,
    make_content,
    tensor_bytes_in,
    tensor_record,
)
from fedadb.deploy.refusals import Refusal
from fedadb.deploy.reply_checks import SiteCounts
from fedadb.deploy.roster import read_roster
from fedadb.deploy.secure_site import SecureSite
from fedadb.deploy.site_learner import SiteLearner, load_site, read_experiment
from fedadb.deploy.site_memory import (
    FileMemory,
    NodeStateMemory,
    SiteMemory,
    TracedMemory,
    origin,
    store_memory,
)
from fedadb.deploy.site_rules import (
    MAX_RUNS,
    count_request,
    read_request,
    read_spec,
    require_finite,
    require_known_type,
)
from fedadb.deploy.stated_data import require_same_data
from fedadb.engine.cohorts import train_client
from fedadb.engine.evaluate import TestSet
from fedadb.engine.local import memory_tensors
from fedadb.experiment.config import Experiment


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


@app.query()
def introduce(message: Message, context: Context) -> Message:
    """Reply with the site's name and number of rows, if it can take part."""
    _, site = _prepare(message, context)
    config = context.node_config
    introduction = {
        "site": str(config.get("site", "")),
        "partition": int(config.get("partition-id", -1)),
        "rows": 0 if _is_secure(context) else len(site.shard),
    }
    return Message(make_content(introduction), reply_to=message)


@app.query(KEY_ACTION)
def offer_key(message: Message, context: Context) -> Message:
    """Reply with the site's public key for the run."""
    request, _ = _prepare(message, context)
    offer = _secure_site(request, context).offer()
    return Message(make_content(offer.model_dump()), reply_to=message)


@app.query(ROSTER_ACTION)
def agree_on_keys(message: Message, context: Context) -> Message:
    """Check the keys of all sites, and reply with their digest and the masked number of rows."""
    request, site = _prepare(message, context)
    e, secure = _experiment(context), _secure_site(request, context)
    digest, rows = secure.agree(request.keys or {}, len(site.shard), e.rounds, e.seed)
    return Message(make_content({"digest": digest}, bytes_record(rows)), reply_to=message)


@app.query(END_ACTION)
def end_run(message: Message, context: Context) -> Message:
    """Delete the site's private key of the run."""
    request, _ = _prepare(message, context)
    _secure_site(request, context).end()
    return Message(make_content({}), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train one round, and reply with the weights; with secure aggregation, masked."""
    request, site = _prepare(message, context)
    sent = _unpack(site.broadcast, message, site)
    memories = _memories(request, context)
    if _is_secure(context):
        before = origin(memories, request.last_used)
        order = order_digest(request, tensor_bytes_in(message.content), before)
        trained = partial(_train, sent, request, site, TracedMemory(memories, order))
        secure, e, rows = _secure_site(request, context), _experiment(context), len(site.shard)
        masked = masked_reply(secure, request, order, e, sent.w, rows, trained)
        return Message(make_content({}, bytes_record(masked)), reply_to=message)
    reply = _train(sent, request, site, memories)
    return Message(make_content({}, tensor_record(pack(reply))), reply_to=message)


def _train(sent: Any, request: Request, site: SiteLearner, memories: SiteMemory) -> Reply[Any]:
    """The site's reply after a round of training; what it remembers is stored."""
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
    return reply


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Reply with the summed loss on the site's test images, and with counts per class."""
    request, site = _prepare(message, context)
    w = _unpack(Weights, message, site).w
    if _is_secure(context):
        secure = _secure_site(request, context)
        order = order_digest(request, tensor_bytes_in(message.content))
        masked = masked_counts(secure, request, order, partial(_evaluate, w, site))
        return Message(make_content({}, bytes_record(masked)), reply_to=message)
    if site.test is None or not len(site.test.y):
        raise Refusal(
            refusals.NO_TEST_IMAGES,
            "deployment.evaluate: this site has no test images of its own",
            travels=True,
        )
    return Message(make_content(_evaluate(w, site)._asdict()), reply_to=message)


def _evaluate(w: Vector, site: SiteLearner) -> SiteCounts:
    """The evaluation of the weights on the site's test images, if it has any."""
    f, plan = site.learner.f, site.learner.plan
    if site.test is None or not len(site.test.y):
        return SiteCounts(0.0, [0] * f.classes, [0] * f.classes)
    test_set = TestSet(f, site.test, site.shard.transform, plan.batch_size)
    losses, correct = zip(
        *(test_set.evaluate_batch(w, i) for i in range(len(test_set))), strict=True
    )
    return SiteCounts(
        sum(losses), [sum(column) for column in zip(*correct, strict=True)], test_set.counts
    )


def _prepare(message: Message, context: Context) -> tuple[Request, SiteLearner]:
    """Check the request against the site's own experiment, and load the site's data."""
    config = context.node_config
    torch.set_num_threads(int(config.get("threads", 1)))
    e, kind = _experiment(context), message.metadata.message_type
    request = read_request(message.content, kind, e)
    spec = read_spec(request.data, e)
    if e.deployment.secure_aggregation and "state" in config:
        require_same_data(Path(str(config["state"])), e, request.data)
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
    return request, load_site(str(context.run_config["experiment"]), spec, data, partition)


def _unpack(kind: type[Tree], message: Message, site: SiteLearner) -> Tree:
    """The tree of tensors that the server sent, or a Refusal."""
    f = site.learner.f
    try:
        tensors = messages.tensors_in(message.content)
        require_finite(tensors, f.weights().flat.dtype)
        return unpack(kind, site.to_device(tensors), f.layout)
    except Fault as error:
        raise Refusal(refusals.BAD_REQUEST, str(error), travels=True) from error


def _memories(request: Request, context: Context) -> SiteMemory:
    if directory := context.node_config.get("state"):
        return FileMemory(Path(str(directory)), request.run)
    return NodeStateMemory(context.state)


def _experiment(context: Context) -> Experiment:
    return read_experiment(str(context.run_config["experiment"]))


def _is_secure(context: Context) -> bool:
    return _experiment(context).deployment.secure_aggregation


def _secure_site(request: Request, context: Context) -> SecureSite:
    """This site in the request's run; a Refusal if it has no roster."""
    config = context.node_config
    if "directory" not in config or "state" not in config:
        raise Refusal(
            refusals.NOT_ALLOWED,
            "deployment.secure_aggregation: this site has no roster, because its node "
            "configuration does not set directory and state",
            travels=True,
        )
    roster = read_roster(Path(str(config["directory"])))
    settings = settings_digest(shared_settings(_experiment(context)))
    return SecureSite(request.run, settings, roster, Path(str(config["state"])))
