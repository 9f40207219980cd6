"""What a federated algorithm is: hyperparameters, and a hook wherever methods differ."""

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
    @property
    def w(self) -> Vector: ...


S = TypeVar("S", bound=HasWeights)  # server state
B = TypeVar("B", bound=HasWeights)  # what the server sends to the clients of a round
C = TypeVar("C", default=tuple[()])  # what a client remembers between its rounds


class Weights(NamedTuple):
    """The plainest server state and broadcast."""

    w: Vector


class Round(NamedTuple):
    t: int  # 1, 2, …, T
    total: int  # T
    clients: int  # K: all of them, not only those of this round
    examples: int  # N: the rows of all of them
    lr_decay: float = 1.0  # what the learning rate is multiplied by after each round

    @property
    def lr_factor(self) -> float:
        """The learning rate of this round over that of the first."""
        return self.lr_decay ** (self.t - 1)


class Reply(NamedTuple):
    w: Vector  # w_k
    examples: Tensor  # n_k
    measured: Mapping[str, Tensor] = MappingProxyType({})  # numbers for the round's record


class Context(NamedTuple, Generic[B, C]):
    """What client k holds during round t."""

    sent: B
    memory: C
    counts: Tensor  # n_{k,c}
    round: Round


class Algorithm(ABC, Generic[S, B, C]):
    """Subclasses are frozen dataclasses whose fields are the hyperparameters.

    Each hook's default means "as in plain local SGD". States are NamedTuples of Vectors and
    Tensors; hooks return new ones and change nothing. `loss` and `gradient` draw no random
    numbers and do not branch on the value of a tensor.
    """

    timed: ClassVar[str | None] = None  # what the time of `broadcast` is recorded as, if it is work

    # model

    def heads(self, dim: int, classes: int) -> Mapping[str, nn.Module]:
        """The classifiers on top of the features; the first one is deployed."""
        return {"head": nn.Linear(dim, classes)}

    # server

    @abstractmethod
    def init(self, w: Vector) -> S:
        """The state before the first round."""

    @abstractmethod
    def broadcast(self, s: S, f: Model, rng: Stream) -> B:
        """What the clients of the coming round receive."""

    @abstractmethod
    def aggregate(self, s: S, replies: Sequence[Reply], round: Round) -> S:
        """The state after the round."""

    def deployed(self, s: S) -> Vector:
        """The weights that are evaluated and kept."""
        return s.w

    def keeps(self, round: Round) -> bool:
        """Whether what is sent in the round stays in the run's directory."""
        return False

    # client

    def memory(self, w: Vector) -> C:
        """What a client remembers before its first round."""
        return ()  # type: ignore[return-value]  # C defaults to tuple[()]

    def batches(
        self, f: Model, sent: B, data: Shard, plan: LocalPlan, rng: Stream
    ) -> Iterator[Any]:
        """What each local step looks at; only the algorithm looks inside."""
        return plan.batches(data, rng)

    def measure(self, f: Model, batch: Any, ctx: Context[B, C]) -> Mapping[str, Tensor]:
        """Numbers to record, taken before the first step; the record has the clients' mean."""
        return {}

    def loss(self, f: Model, w: Vector, batch: Any, ctx: Context[B, C]) -> Tensor:
        return F.cross_entropy(f(w, batch.x).logits, batch.y)

    def gradient(self, f: Model, w: Vector, batch: Any, ctx: Context[B, C]) -> Vector:
        """The direction that local SGD descends."""
        return gradient(lambda v: self.loss(f, v, batch, ctx), w)

    def remember(self, w: Vector, ctx: Context[B, C]) -> C:
        """What the client remembers after having trained to w."""
        return ctx.memory


def shares(replies: Sequence[Reply], weighted: bool = True) -> list[float]:
    """p_k = n_k / Σ n; if not weighted, the same for all."""
    examples = [int(reply.examples) if weighted else 1 for reply in replies]
    return [n / sum(examples) for n in examples]


def average(replies: Sequence[Reply], weighted: bool = True) -> Vector:
    """Σ p_k w_k."""
    return combine(shares(replies, weighted), (reply.w for reply in replies))
