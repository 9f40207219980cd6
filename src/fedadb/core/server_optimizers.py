"""Server optimisers: how the global weights follow from those that an algorithm proposes.

The pseudo-gradient Δ = proposal − w takes the place of a descent direction. FedAvgM: Hsu, Qi and
Brown, "Measuring the effects of non-identical data distribution for federated visual
classification" (2019), https://arxiv.org/abs/1909.06335. FedAdagrad, FedAdam and FedYogi: Reddi et
al., "Adaptive federated optimization" (ICLR 2021), https://arxiv.org/abs/2003.00295.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, Protocol, runtime_checkable

import torch
from annotated_types import Ge, Gt, Lt
from torch import Tensor

from fedadb.core.algorithm import Round
from fedadb.core.vector import Vector
from fedadb.roles import Searched


@runtime_checkable
class ServerOptimizer(Protocol):
    """A frozen dataclass whose fields are the optimiser's settings.

    What it accumulates is a NamedTuple of Vectors and Tensors, saved with each checkpoint.

    ```python
    @dataclass(frozen=True)
    class Halfway:
        def init(self, w):
            return ()

        def step(self, w, proposal, state, round):
            return w + 0.5 * (proposal - w), state

    fedadb.Server(optimizer=Halfway())
    ```
    """

    def init(self, w: Vector) -> Any:
        """The state before the first round, given the initial weights."""
        ...

    def step(self, w: Vector, proposal: Vector, state: Any, round: Round) -> tuple[Vector, Any]:
        """The weights after the round, and the new state; modifies nothing.

        Args:
            w: The global weights before the round.
            proposal: The algorithm's next weights, such as the mean of the clients'.
            state: What the last step returned, or `init`.
            round: Which round this is.
        """
        ...


class Momentum(NamedTuple):
    """The state of ServerSGD."""

    m: Vector


class AdaptiveState(NamedTuple):
    """The state of the adaptive three."""

    m: Vector  # running mean of Δ
    v: Vector  # of its squares: their sum, or a running mean


@dataclass(frozen=True)
class ServerSGD:
    """FedAvgM: momentum on the server, m ← βm + Δ, w ← w + ηm.

    Some authors weight Δ by 1 − β; that is this rule with η smaller by the same factor.

    ```python
    fedadb.Experiment(algorithm="fedavg", server={"optimizer": fedadb.ServerSGD(momentum=0.7)})
    ```
    """

    lr: Annotated[float, Gt(0), Searched(0.1, 1)] = 1.0  # η: the server's learning rate
    # β: share of the last step in the next
    momentum: Annotated[float, Ge(0), Lt(1), Searched(0.5, 0.95, "linear")] = 0.9

    def init(self, w: Vector) -> Momentum:
        return Momentum(w.zeros())

    def step(
        self, w: Vector, proposal: Vector, state: Momentum, round: Round
    ) -> tuple[Vector, Momentum]:
        m = self.momentum * state.m + (proposal - w)
        if self.lr == 1 and self.momentum == 0:  # w + (proposal − w) would round
            return proposal, Momentum(m)
        return w + self.lr * m, Momentum(m)


@dataclass(frozen=True)
class ServerAdagrad:
    """FedAdagrad: v ← v + Δ². Its steps become shorter by themselves.

    ```python
    fedadb.Experiment(algorithm="fedavg", server={"optimizer": fedadb.ServerAdagrad(lr=0.03)})
    ```
    """

    lr: Annotated[float, Gt(0), Searched(0.001, 0.1)] = 0.01  # η: the server's learning rate
    beta1: Annotated[float, Ge(0), Lt(1)] = 0.0  # β₁: decay of the mean of Δ; 0: Δ itself
    tau: Annotated[float, Gt(0), Searched(1e-4, 0.1)] = 1e-3  # τ: added to √v, for bounded steps
    initial: Annotated[float, Ge(0)] | Literal["auto"] = "auto"  # v before round 1; auto: τ²

    def init(self, w: Vector) -> AdaptiveState:
        return _start(w, self.initial, self.tau)

    def step(
        self, w: Vector, proposal: Vector, state: AdaptiveState, round: Round
    ) -> tuple[Vector, AdaptiveState]:
        delta = proposal - w
        m = _mean(state.m, delta, self.beta1)
        v = state.v + delta * delta
        return _adaptive(w, m, v, self.lr, self.tau), AdaptiveState(m, v)


@dataclass(frozen=True)
class ServerAdam:
    """FedAdam: v ← β₂v + (1 − β₂)Δ².

    Δ becomes smaller with the clients' learning rate, but dividing by √v undoes that. So the
    server's learning rate follows the clients' schedule, unless `follow_schedule` is false.

    ```python
    fedadb.Experiment(algorithm="fedavg", server={"optimizer": fedadb.ServerAdam(lr=0.003)})
    ```
    """

    # η: the server's learning rate in the first round
    lr: Annotated[float, Gt(0), Searched(0.001, 0.1)] = 0.01
    beta1: Annotated[float, Ge(0), Lt(1)] = 0.9  # β₁: decay of the mean of Δ
    beta2: Annotated[float, Ge(0), Lt(1)] = 0.99  # β₂: decay of the mean of Δ²
    tau: Annotated[float, Gt(0), Searched(1e-4, 0.1)] = 1e-3  # τ: added to √v, for bounded steps
    initial: Annotated[float, Ge(0)] | Literal["auto"] = "auto"  # v before round 1; auto: τ²
    bias_correction: bool = False  # multiply η by √(1 − β₂ᵗ) / (1 − β₁ᵗ); the paper does not
    follow_schedule: bool = True  # multiply η by the factor of the clients' learning rate

    def init(self, w: Vector) -> AdaptiveState:
        return _start(w, self.initial, self.tau)

    def step(
        self, w: Vector, proposal: Vector, state: AdaptiveState, round: Round
    ) -> tuple[Vector, AdaptiveState]:
        delta = proposal - w
        m = _mean(state.m, delta, self.beta1)
        v = self.second_moment(state.v, delta * delta)
        return _adaptive(w, m, v, self.rate(round), self.tau), AdaptiveState(m, v)

    def second_moment(self, v: Vector, square: Vector) -> Vector:
        """The next v, given Δ²."""
        return self.beta2 * v + (1 - self.beta2) * square

    def rate(self, round: Round) -> float:
        """η of the round."""
        lr = self.lr
        if self.follow_schedule:
            lr *= round.lr_factor
        if self.bias_correction:
            lr *= math.sqrt(1 - self.beta2**round.t) / (1 - self.beta1**round.t)
        return lr


@dataclass(frozen=True)
class ServerYogi(ServerAdam):
    """FedYogi: FedAdam with v ← v − (1 − β₂)Δ² sign(v − Δ²), which falls more slowly.

    ```python
    fedadb.Experiment(algorithm="fedavg", server={"optimizer": fedadb.ServerYogi(tau=0.01)})
    ```
    """

    def second_moment(self, v: Vector, square: Vector) -> Vector:
        sign: Tensor = torch.sign((v - square).flat)
        return v - (1 - self.beta2) * square * sign


def _start(w: Vector, initial: float | Literal["auto"], tau: float) -> AdaptiveState:
    v_0 = tau**2 if initial == "auto" else initial
    return AdaptiveState(w.zeros(), Vector(torch.full_like(w.flat, v_0), w.layout))


def _mean(m: Vector, delta: Vector, beta1: float) -> Vector:
    return beta1 * m + (1 - beta1) * delta


def _adaptive(w: Vector, m: Vector, v: Vector, lr: float, tau: float) -> Vector:
    return w + lr * m / Vector(v.flat.sqrt() + tau, v.layout)


SERVER_OPTIMIZERS: dict[str, type[ServerOptimizer]] = {
    "sgd": ServerSGD,
    "adagrad": ServerAdagrad,
    "adam": ServerAdam,
    "yogi": ServerYogi,
}
