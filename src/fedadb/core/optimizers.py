"""Local optimisers: how a client's step follows from a gradient.

Each is one fused kernel of torch over the flat tensors, in place.
"""

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, Protocol, runtime_checkable

import torch
from annotated_types import Ge, Gt, Lt
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from fedadb.core.errors import BadInput
from fedadb.core.vector import Vector


@runtime_checkable
class Optimizer(Protocol):
    """A frozen dataclass whose fields are the optimiser's settings.

    What it accumulates is a NamedTuple of tensors. A client starts with a new one in each round.

    ```python
    @dataclass(frozen=True)
    class SignSGD:
        def start(self, w):
            return ()

        def step(self, w, g, state, lr, weight_decay):
            w.flat.sub_(lr * (g.flat + weight_decay * w.flat).sign())

    plan = fedadb.LocalPlan(lr=0.001, optimizer=SignSGD())
    ```
    """

    def start(self, w: Vector) -> Any:
        """The state before the first step from the weights w."""
        ...

    def step(self, w: Vector, g: Vector, state: Any, lr: float, weight_decay: float) -> None:
        """Take one step against the gradient g: modifies w and the state, and may modify g."""
        ...


class Velocity(NamedTuple):
    """The state of SGD."""

    v: Tensor


class Moments(NamedTuple):
    """The state of Adam."""

    m: Tensor  # running mean of the gradients
    v: Tensor  # running mean of their squares
    steps: Tensor  # taken so far


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent with momentum; weight decay is part of the gradient.

    ```python
    plan = fedadb.LocalPlan(lr=0.05, optimizer=fedadb.SGD(momentum=0.9, nesterov=True))
    ```
    """

    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9  # share of the last step in the next
    nesterov: bool = False  # whether the momentum looks one step ahead

    def __post_init__(self) -> None:
        if self.nesterov and self.momentum == 0:
            raise BadInput("nesterov = True: has no effect without momentum; set momentum above 0")

    def start(self, w: Vector) -> Velocity:
        return Velocity(torch.zeros_like(w.flat))

    def step(self, w: Vector, g: Vector, state: Velocity, lr: float, weight_decay: float) -> None:
        sgd(
            [w.flat],
            [g.flat],
            [state.v],
            weight_decay=weight_decay,
            momentum=self.momentum,
            lr=lr,
            dampening=0,
            nesterov=self.nesterov,
            maximize=False,
            fused=True,
        )


@dataclass(frozen=True)
class Adam:
    """Adam, of Kingma and Ba (ICLR 2015); weight decay is part of the gradient.

    ```python
    plan = fedadb.LocalPlan(lr=0.001, optimizer=fedadb.Adam())
    ```
    """

    beta1: Annotated[float, Ge(0), Lt(1)] = 0.9  # decay of the mean of gradients
    beta2: Annotated[float, Ge(0), Lt(1)] = 0.999  # decay of the mean of squared gradients
    eps: Annotated[float, Gt(0)] = 1e-8  # added to the root of the mean of squares

    decoupled_weight_decay = False

    def start(self, w: Vector) -> Moments:
        steps = torch.zeros((), dtype=torch.float32, device=w.flat.device)
        return Moments(torch.zeros_like(w.flat), torch.zeros_like(w.flat), steps)

    def step(self, w: Vector, g: Vector, state: Moments, lr: float, weight_decay: float) -> None:
        adam(
            [w.flat],
            [g.flat],
            [state.m],
            [state.v],
            [],
            [state.steps],
            decoupled_weight_decay=self.decoupled_weight_decay,
            amsgrad=False,
            beta1=self.beta1,
            beta2=self.beta2,
            lr=lr,
            weight_decay=weight_decay,
            eps=self.eps,
            maximize=False,
            fused=True,
        )


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with weight decay apart from the gradient, of Loshchilov and Hutter (ICLR 2019).

    ```python
    plan = fedadb.LocalPlan(lr=0.001, weight_decay=0.01, optimizer=fedadb.AdamW())
    ```
    """

    decoupled_weight_decay = True


OPTIMIZERS: dict[str, type[Optimizer]] = {"sgd": SGD, "adam": Adam, "adamw": AdamW}


def weight_of_steps(optimizer: Optimizer, steps: int) -> float:
    """a(S, μ): the total weight that S local steps give to a constant gradient.

    It is S without momentum. Methods that divide an update by it need an optimiser for which it is
    known.
    """
    if not isinstance(optimizer, SGD) or optimizer.nesterov:
        given = f"{type(optimizer).__name__.lower()}{' with nesterov' * isinstance(optimizer, SGD)}"
        raise BadInput(
            f"local.optimizer = {given!r}: the method divides by the number of local steps, which "
            "needs 'sgd' without nesterov"
        )
    mu = optimizer.momentum
    return (steps - mu * (1 - mu**steps) / (1 - mu)) / (1 - mu)
