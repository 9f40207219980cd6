"""Methods that fail in an actor, in a file of their own: each actor that starts imports it."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.algorithm import Context
from fedadb.core.errors import Fault
from fedadb.core.model import Model
from fedadb.core.vector import Vector


@dataclass(frozen=True)
class Fails(FedAvg):
    """For a client with a single class."""

    def loss(self, f: Model, w: Vector, batch: Any, ctx: Context[Any, Any]) -> Tensor:
        if len(ctx.counts.nonzero()) == 1:
            self.fail()
        return super().loss(f, w, batch, ctx)

    def fail(self) -> None:
        raise Fault("no more")


@dataclass(frozen=True)
class Dies(Fails):
    def fail(self) -> None:
        os._exit(1)


@dataclass(frozen=True)
class DiesOnce(Fails):
    mark: str = ""

    def fail(self) -> None:
        if not Path(self.mark).exists():
            Path(self.mark).touch()
            os._exit(1)
