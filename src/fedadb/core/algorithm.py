"""What a federated algorithm is: hyperparameters, and one hook per place where methods differ."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Generic, NamedTuple, Protocol

import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import TypeVar

from fedadb.core.data import LocalPlan, Shard
from fedadb.core.model import Model
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector, combine, gradient


class HasWeights(Protocol):
    """Server states and broadcasts: NamedTuples with the weights `w` among their fields."""

    @property
    def w(self) -> Vector: ...


S = TypeVar("S", bound=HasWeights)  # server state
B = TypeVar("B", bound=HasWeights)  # broadcast: what the server sends to the clients of a round
C = TypeVar("C", default=tuple[()])  # client memory: what a client keeps between its rounds


class Weights(NamedTuple):
    """The simplest server state and broadcast: weights alone."""

    w: Vector


class Round(NamedTuple):
    """Which round this is, of which federation."""

    t: int  # 1, 2, …, T; 0 before the first round
    total: int  # T
    clients: int  # K: all clients, not only those of this round
    examples: int  # N: the number of rows of all clients
    lr_factor: float = 1.0  # this round's learning rate over the first round's; set by `federate`


class Reply(NamedTuple):
    """What a client sends back: its weights w_k, its number of rows n_k, and measurements."""

    w: Vector
    examples: Tensor
    measured: Mapping[str, Tensor] = MappingProxyType({})


class Context(NamedTuple, Generic[B, C]):
    """What client k holds during round t."""

    sent: B  # the broadcast it received
    memory: C
    counts: Tensor  # n_{k,c}: its number of rows of each class
    round: Round


class Algorithm(ABC, Generic[S, B, C]):
    """A federated algorithm: a frozen dataclass whose fields are the hyperparameters.

    The type parameters are the server state, the broadcast and the client memory: NamedTuples of
    Vectors and Tensors. Hooks return new ones and modify nothing. Each default means "as in plain
    local SGD", so a method overrides only the hooks in which it differs. `loss` and `gradient`
    draw no random numbers and do not branch on the value of a tensor.

    ```python
    @dataclass(frozen=True)
    class FedProx(fedadb.FedAvg):
        mu: float = 0.01  # weight of the proximal term

        def loss(self, f, w, batch, ctx):
            drift = w - ctx.sent.w
            return super().loss(f, w, batch, ctx) + self.mu / 2 * (drift @ drift)
    ```
    """

    # The record's key for the seconds spent in `broadcast`; None: not recorded.
    broadcast_seconds_key: ClassVar[str | None] = None
    # The names that `measure` returns. A server records no other measurement of a real site.
    measures: ClassVar[tuple[str, ...]] = ()

    # model

    def heads(self, dim: int, classes: int) -> Mapping[str, nn.Module]:
        """The classifiers on top of `dim` features, by name; the first is deployed."""
        return {"head": nn.Linear(dim, classes)}

    # server

    @abstractmethod
    def init(self, w: Vector) -> S:
        """The state before the first round, given the initial weights."""

    @abstractmethod
    def broadcast(self, s: S, f: Model, rng: Stream) -> B:
        """What the clients of the coming round receive."""

    @abstractmethod
    def aggregate(self, s: S, replies: Sequence[Reply], round: Round) -> S:
        """The state after the round."""

    def deployed(self, s: S) -> Vector:
        """The weights that are evaluated, and saved at the end."""
        return s.w

    def keep(self, sent: B, f: Model) -> Any:
        """The part of a broadcast to save for analyses, as a NamedTuple; None: nothing."""
        return None

    # client

    def memory(self, w: Vector) -> C:
        """A client's memory before its first round."""
        return ()  # type: ignore[return-value]  # C defaults to tuple[()]

    def batches(
        self, f: Model, sent: B, data: Shard, plan: LocalPlan, rng: Stream
    ) -> Iterator[Any]:
        """The batch of each local step; only the algorithm itself looks inside."""
        return plan.batches(data, rng)

    def measure(self, f: Model, batch: Any, ctx: Context[B, C]) -> Mapping[str, Tensor]:
        """Numbers for the record, computed before the first step and averaged over clients."""
        return {}

    def loss(self, f: Model, w: Vector, batch: Any, ctx: Context[B, C]) -> Tensor:
        """The loss that `gradient` differentiates."""
        return F.cross_entropy(f(w, batch.x).logits, batch.y)

    def gradient(self, f: Model, w: Vector, batch: Any, ctx: Context[B, C]) -> Vector:
        """The direction that a local SGD step descends."""
        return gradient(lambda v: self.loss(f, v, batch, ctx), w)

    def remember(self, w: Vector, ctx: Context[B, C]) -> C:
        """The client's memory after it trained to the weights w."""
        return ctx.memory


def shares(replies: Sequence[Reply], weighted: bool = True) -> list[float]:
    """p_k = n_k / Σ n, or 1 / (number of replies) if not weighted."""
    examples = [int(reply.examples) if weighted else 1 for reply in replies]
    return [n / sum(examples) for n in examples]


def average(replies: Sequence[Reply], weighted: bool = True) -> Vector:
    """Σ p_k w_k: the mean of the clients' weights, by number of rows unless `weighted` is false.

    ```python
    w = fedadb.average(replies)
    ```
    """
    return combine(shares(replies, weighted), (reply.w for reply in replies))
