"""Vectors and replies of a few numbers, for examples worked by hand."""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from fedadb.core.algorithm import Algorithm, Context
from fedadb.core.model import Classifier, Domain, Model
from fedadb.core.replies import Reply
from fedadb.core.stream import Stream
from fedadb.core.vector import Layout, Vector, Weights
from fedadb.engine.local import Learner, Training


def vector(*values: float) -> Vector:
    return Vector(torch.tensor(values, dtype=torch.float32), Layout(("w",), ((len(values),),)))


def reply(n: int, *values: float) -> Reply:
    return Reply(Weights(vector(*values)), torch.tensor(n))


def tensors(**parts: list[object]) -> Vector:
    return Vector.of(
        {name: torch.tensor(values, dtype=torch.float32) for name, values in parts.items()}
    )


def close(found: Tensor, *expected: float) -> None:
    torch.testing.assert_close(
        found.flatten(), torch.tensor(expected, dtype=torch.float32), atol=1e-5, rtol=1e-5
    )


def linear_model(rows: int, classes: int) -> Model:
    """A linear classifier of vectors of length `rows`."""
    head = nn.Linear(rows, classes)
    return Model(Classifier(nn.Identity(), {"head": head}), Domain.unbounded((rows,)), classes)


def weights_for(z: Tensor) -> Vector:
    """The linear classifier's weights with the logits z for the rows of the identity matrix."""
    return Vector.of({"heads.head.weight": z.T, "heads.head.bias": torch.zeros(z.shape[1])})


@dataclass(frozen=True)
class NoStep:
    """A local optimiser that keeps the gradients and takes no steps."""

    seen: list[Vector] = field(default_factory=list)

    def start(self, w: Vector) -> tuple[()]:
        return ()

    def step(self, w: Vector, g: Vector, state: Any, lr: float, weight_decay: float) -> None:
        self.seen.append(g)


def direction(
    algorithm: Algorithm[Any, Any, Any, Any],
    f: Model,
    w: Vector,
    batch: Any,
    ctx: Context[Any, Any],
    clip: float | None,
) -> Vector:
    """What reaches the local optimiser: the gradient, clipped, and the method's own decay."""
    optimizer = NoStep()
    learner = Learner(algorithm, f, replace(ctx.plan, clip=clip, optimizer=optimizer))
    nothing: Any = None
    training = Training(nothing, ctx, (), w, [()], iter(()), batch, {}, Stream(0))
    learner.step(training, algorithm.gradient(f, w, batch, ctx))
    return optimizer.seen[0]
