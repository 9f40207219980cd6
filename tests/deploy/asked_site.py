"""A site in this process, to which a test sends what an honest server sends, or something else."""

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from torch import Tensor

from fedadb.core.algorithm import Round
from fedadb.core.data import DataSpec
from fedadb.core.packing import pack
from fedadb.core.vector import Weights
from fedadb.deploy.agreement import known_spec, shared_settings
from fedadb.deploy.client_app import app
from fedadb.deploy.messages import Request, tensor_record
from fedadb.deploy.refusals import Refused, parse
from fedadb.experiment.build import build_model
from fedadb.experiment.config import Experiment
from fedadb.experiment.stored import spec_to_table

RUN = "0123456789abcdef"


def experiment(**deployment: Any) -> Experiment:
    """FedDyn, because its sites remember something."""
    return Experiment.read(
        {
            "rounds": 3,
            "algorithm": "feddyn",
            "local": {"epochs": 1},
            "federation": {"clients": 2, "participation": 1.0},
            "deployment": {"evaluate": "sites", **deployment},
        }
    )


def write_data(path: Path, rows: int = 40, classes: int = 10) -> None:
    """Digits of noise, some to train on and some to test on."""
    rng = np.random.default_rng(0)
    x = rng.integers(256, size=(rows, 28, 28), dtype=np.uint8)
    y = np.arange(rows) % classes
    np.savez(path, x_train=x, y_train=y, x_test=x[:10], y_test=y[:10])


@dataclass
class AskedSite:
    """A site with its own copy of the experiment, and the requests of its server."""

    directory: Path
    experiment: Experiment = field(default_factory=experiment)
    max_runs: int = 10
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.directory.mkdir(exist_ok=True)
        if not self.data.exists():
            write_data(self.data)
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1

    @cached_property
    def spec(self) -> DataSpec:
        spec = known_spec(self.experiment)
        assert spec is not None
        return spec

    @property
    def data(self) -> Path:
        return self.directory / "data.npz"

    @property
    def context(self) -> Context:
        config: dict[str, Any] = {
            "data": f"npz:{self.data}",
            "state": str(self.directory / "state"),
            "max-runs": self.max_runs,
        }
        return Context(1, 1, config, RecordDict(), {"experiment": self.experiment.toml()})

    def table(self, kind: str, t: int = 1, **changes: Any) -> dict[str, Any]:
        """The table of an honest server's request, with changes."""
        e, train = self.experiment, kind == "train"
        round = Round(t, e.rounds, 2, 80) if train else Round(0, 0, 0, 0)
        k, settings, data = 0 if train else -1, shared_settings(e), spec_to_table(self.spec)
        return {**Request(RUN, k, 0, round, settings, data)._asdict(), **changes}

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of an honest server's message: the initial weights."""
        return pack(Weights(build_model(self.experiment, self.spec).weights()))

    def message(self, kind: str, text: str, tensors: Mapping[str, Tensor] | None = None) -> Message:
        """A message with this text as its table."""
        record = tensor_record(self.tensors() if tensors is None else tensors)
        records = RecordDict({"table": ConfigRecord({"json": text}), "tensors": record})
        message = Message(records, dst_node_id=1, message_type="train", group_id="1")
        message.metadata.__dict__["_message_id"] = f"message-{next(self._numbers)}"
        message.metadata.__dict__["_message_type"] = kind  # a server can send any type
        return message

    def ask(self, kind: str, tensors: Any = None, **changes: Any) -> Message:
        """The site's reply to a request."""
        text = json.dumps(self.table(kind, **changes))
        return app(self.message(kind, text, tensors), self.context)

    def refusal(self, kind: str, tensors: Any = None, **changes: Any) -> Refused:
        """The site's refusal of a request."""
        return refused(self.ask(kind, tensors, **changes))


def refused(reply: Message) -> Refused:
    assert reply.has_error()
    return parse(str(reply.error.reason))
