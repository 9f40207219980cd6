"""What a server may ask a site for: nothing beyond the site's own copy of the experiment.

The application's hash proves that nobody else changed the settings on the way. It does not bind
the server, which can send any message. So a site checks every request itself, before it computes.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from flwr.app import RecordDict
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from torch import Tensor

from fedadb.core.columns import inputs_of
from fedadb.core.data import DataSpec
from fedadb.core.errors import Fault
from fedadb.core.transform import Bounded, Transform
from fedadb.datasets.arrays import is_image_shape
from fedadb.deploy.agreement import require_same_settings, require_same_version, shared_settings
from fedadb.deploy.messages import (
    END,
    EVALUATE,
    KEY,
    MAX_VALUES,
    QUERY,
    ROSTER,
    TRAIN,
    Request,
    request_in,
    shown,
    table_in,
)
from fedadb.deploy.refusals import BAD_REQUEST, Refusal, not_allowed
from fedadb.experiment.config import Experiment
from fedadb.experiment.stored import spec_to_table
from fedadb.storage.files import write_atomically

MAX_RUNS = 10  # of one experiment
# Times that a site trains one round: the server asks again after a lost reply and after a restart.
MAX_TIMES = 100
MAX_CLIENTS = 1_000_000
MAX_CLASSES = 100_000
MAX_SIDE = 1024  # pixels of an image
MAX_DIMENSIONS = 8
ASKED = "asked.json"  # file in the run's memory: what the server has asked for
RUN = re.compile(r"[0-9a-f]{8,64}")


def require_known_type(kind: str) -> None:
    """Raise a Refusal unless a message has one of the types that this package sends."""
    if kind not in (QUERY, TRAIN, EVALUATE, KEY, ROSTER, END):
        raise Refusal(BAD_REQUEST, "the message has an unknown type", travels=True)


def read_request(content: RecordDict, kind: str, e: Experiment) -> Request:
    """The request in a message's content, or a Refusal.

    Args:
        content: What the server sent.
        kind: The type of the message.
        e: This site's copy of the experiment.
    """
    try:
        table = table_in(content)
        # What differs is easier to mend than what cannot be read, so it is said first.
        require_same_version(table.get("version"))
        if isinstance(settings := table.get("settings"), dict):
            require_same_settings(shared_settings(e), settings)
        request = request_in(content)
    except Fault as error:
        raise Refusal(BAD_REQUEST, str(error), travels=True) from error
    _require_in_range(request)
    if kind == EVALUATE and e.deployment.evaluate == "server":
        raise not_allowed("deployment.evaluate is 'server' here, so this site tests no models")
    if kind in (KEY, ROSTER, END) and not e.deployment.secure_aggregation:
        raise not_allowed("deployment.secure_aggregation is false here, so this site has no key")
    if kind == TRAIN:
        _require_own_round(request, e)
    if kind != QUERY and not RUN.fullmatch(request.run):  # it becomes a path
        raise Refusal(BAD_REQUEST, "the run's identity is not a hexadecimal number", travels=True)
    return request


def _require_in_range(request: Request) -> None:
    t, total, clients, examples, lr_factor = request.round
    valid = (
        all(0 <= n < 1 << 60 for n in (t, total, examples, request.last_used))
        and 0 <= clients <= MAX_CLIENTS
        and -1 <= request.client < MAX_CLIENTS
        and 0 <= request.attempt < MAX_TIMES
        and math.isfinite(lr_factor)
        and len(request.run) <= 64
    )
    if not valid:
        raise Refusal(BAD_REQUEST, "a number of the request is out of range", travels=True)


def _require_own_round(request: Request, e: Experiment) -> None:
    round, k = request.round, request.client
    if round.total != e.rounds or not 1 <= round.t <= e.rounds:
        raise not_allowed(f"round {round.t} of {round.total}: this site trains 1 to {e.rounds}")
    if not 0 <= k < round.clients:
        raise not_allowed(f"client {k}: the request says that there are {round.clients}")
    if request.last_used >= round.t:
        raise not_allowed(f"round {round.t} cannot follow round {request.last_used}")


def read_spec(table: Mapping[str, Any], e: Experiment) -> DataSpec:
    """The form of the data that the server states, or a Refusal."""
    try:
        spec = TypeAdapter(DataSpec).validate_json(json.dumps(table), strict=True)
        same = json.loads(json.dumps(spec_to_table(spec))) == table  # so nothing is ignored
    except ValidationError as error:
        reason = f"the form of the data is not valid: {shown(error.errors()[0]['msg'])}"
        raise Refusal(BAD_REQUEST, reason, travels=True) from error
    if not same or not _is_sensible(spec):
        raise Refusal(BAD_REQUEST, "the form of the data is not valid", travels=True)
    for key, here, there in (
        ("deployment.classes", e.deployment.classes, spec.classes),
        ("deployment.shape", e.deployment.shape, spec.shape),
        ("the shape of deployment.columns", _columns_shape(e), spec.shape),
    ):
        if here:  # this site's experiment states it
            require_same_settings({key: here}, {key: there})
    return spec


def _columns_shape(e: Experiment) -> tuple[int, ...]:
    columns = e.deployment.columns
    return (len(inputs_of(columns).low),) if columns else ()


def _is_sensible(spec: DataSpec) -> bool:
    names = set(spec.classes)
    named = 1 <= len(spec.classes) == len(names) <= MAX_CLASSES
    if not named or not all(name.isprintable() for name in names):
        return False
    if isinstance(spec.transform, Bounded):
        return _has_sensible_bounds(spec.shape, spec.transform)
    return _has_sensible_images(spec.shape, spec.transform)


def _has_sensible_bounds(shape: tuple[int, ...], bounds: Bounded) -> bool:
    return (
        1 <= len(shape) <= MAX_DIMENSIONS
        and all(1 <= side <= MAX_VALUES for side in shape)
        and math.prod(shape) == len(bounds.low) == len(bounds.high) <= MAX_VALUES
        and all(math.isfinite(end) for end in (*bounds.low, *bounds.high))
        and all(low <= high for low, high in zip(bounds.low, bounds.high, strict=True))
        and not is_image_shape(shape)
    )


def _has_sensible_images(shape: tuple[int, ...], transform: Transform) -> bool:
    channels = shape[0] if len(shape) == 3 else 0
    return (
        channels in (1, 3)
        and all(1 <= side <= MAX_SIDE for side in shape[1:])
        and len(transform.mean) == len(transform.std) == channels
        and all(math.isfinite(mean) for mean in transform.mean)
        and all(math.isfinite(std) and std > 0 for std in transform.std)
        and 0 < transform.zoom <= 1
        and 0 <= transform.pad < min(shape[1:])
        and transform.pad_mode in ("constant", "reflect")
        and 0 <= transform.cutout <= 2 * MAX_SIDE
    )


def require_finite(tensors: Mapping[str, Tensor], dtype: torch.dtype) -> None:
    """Raise a Refusal unless all tensors are finite and weights have the model's type."""
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            sentence = f"the server's {shown(name, 60)} is not finite"
        elif name.startswith("w/") and tensor.dtype != dtype:
            sentence = f"the server's {shown(name, 60)} is {tensor.dtype}; the model's is {dtype}"
        else:
            continue
        raise Refusal(BAD_REQUEST, sentence, travels=True)


class Asked(BaseModel):
    """What a server has asked a site for in one run."""

    model_config = ConfigDict(strict=True, extra="forbid")

    experiment: str  # the digest of the shared settings
    data: str  # the digest of the form of the data
    client: int | None = None
    rounds: dict[str, int] = {}  # times by round
    evaluations: int = 0


def count_request(state: Path, kind: str, request: Request, e: Experiment, max_runs: int) -> None:
    """Record the request in the site's state; raise a Refusal if the server asks too often.

    Args:
        state: The directory with one subdirectory per run.
        kind: The type of the message.
        request: What the server asks for.
        e: This site's copy of the experiment.
        max_runs: The number of runs of the experiment in which this site takes part.
    """
    experiment, data = _digest(shared_settings(e)), _digest(request.data)
    path = state / request.run / ASKED
    if path.exists():
        asked = _read_asked(path)
    else:
        runs = [run for file in state.glob(f"*/{ASKED}") if (run := _read_asked(file))]
        if sum(run.experiment == experiment for run in runs) >= max_runs:
            raise not_allowed(
                f"the server began another run of this experiment after {max_runs} runs; "
                "a higher --max-runs at the site allows more"
            )
        asked = Asked(experiment=experiment, data=data)
    if (asked.experiment, asked.data) != (experiment, data):
        raise not_allowed("the settings or the form of the data changed within a run")
    if kind == TRAIN:
        if asked.client not in (None, request.client):
            raise not_allowed(
                f"this site was client {asked.client} of the run, not {request.client}"
            )
        asked.client, t = request.client, str(request.round.t)
        asked.rounds[t] = asked.rounds.get(t, 0) + 1
    elif kind == EVALUATE:
        asked.evaluations += 1
    if max(asked.rounds.values(), default=0) > MAX_TIMES:
        raise not_allowed(f"the server asked for round {request.round.t} {MAX_TIMES} times")
    if asked.evaluations > MAX_TIMES * e.rounds:
        raise not_allowed(f"the server asked for {MAX_TIMES * e.rounds} evaluations")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(path, asked.model_dump_json().encode())


def _read_asked(path: Path) -> Asked:
    try:
        return Asked.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise Fault(f"{path} is damaged; delete it") from error


def _digest(table: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()
