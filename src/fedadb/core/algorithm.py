"""What a federated algorithm is: hyperparameters, and one hook per place where methods differ."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Generic, Literal, NamedTuple, get_type_hints

import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import TypeVar

from fedadb.core.data import LocalPlan, Shard
from fedadb.core.errors import BadInput
from fedadb.core.model import Model
from fedadb.core.replies import Reply, U, average
from fedadb.core.stream import Stream
from fedadb.core.vector import HasWeights, Vector, Weights, gradient

S = TypeVar("S", bound=HasWeights, default=Weights)  # server state
B = TypeVar("B", bound=HasWeights, default=Weights)  # broadcast: what a round's clients receive
C = TypeVar("C", default=tuple[()])  # client memory: what a client keeps between its rounds


class Round(NamedTuple):
    """Which round this is, of which federation: number t, T rounds, K clients, N rows.

    `t` counts from 1, `total` is T, `clients` is K (all clients, not only those of this round),
    `examples` is N (the rows of all clients), and `lr_factor` is this round's learning rate over
    the plan's.
    """

    t: int  # 1, 2, …, T; 0 before the first round
    total: int  # T
    clients: int  # K: all clients, not only those of this round
    examples: int  # N: the number of rows of all clients
    lr_factor: float = 1.0  # this round's learning rate over the plan's; set by `federate`


class Context(NamedTuple, Generic[B, C]):
    """What client k knows during round t.

    `sent` is the broadcast that it received (`sent.w` are the weights), `memory` what it remembers,
    `counts` its number of rows of each class, `round` the Round, `plan` how it trains
    (`plan.optimizer.momentum`, `plan.epochs`), `steps` its number of local steps in this round, and
    `lr` this round's learning rate.
    """

    sent: B  # the broadcast it received
    memory: C
    counts: Tensor  # n_{k,c}: its number of rows of each class
    round: Round
    plan: LocalPlan  # how it trains: epochs, optimiser, …
    steps: Tensor  # its number of local steps in this round

    @property
    def lr(self) -> float:
        """The learning rate of this round."""
        return self.plan.lr_at(self.round.t, self.round.total)


class PreviousModel(NamedTuple):
    """The memory of a client that compares itself with the model that it trained last."""

    w: Vector  # before its first round, what it receives


class Algorithm(Generic[S, B, C, U]):
    """A federated algorithm: a frozen dataclass whose fields are the hyperparameters.

    Each hook's default is that of FedAvg, so a method overrides only the hooks in which it differs.
    The type parameters are the server state, the broadcast, the client memory and the upload:
    NamedTuples of Vectors and Tensors; the first two and the last have the weights `w` among their
    fields. Hooks return new ones and modify nothing. `loss` and `gradient` draw no random numbers
    and do not branch on the value of a tensor.

    A method that changes what clients do:

    ```python
    @dataclass(frozen=True)
    class LogitAdjustment(fedadb.Algorithm):
        tau: float = 1.0  # strength

        def loss(self, f, w, batch, ctx):
            prior = (ctx.counts + 1) / (ctx.counts + 1).sum()
            return F.cross_entropy(f(w, batch.x).logits + self.tau * prior.log(), batch.y)
    ```

    A method that changes what the server does:

    ```python
    class State(NamedTuple):
        w: fedadb.Vector
        m: fedadb.Vector  # momentum


    @dataclass(frozen=True)
    class ServerMomentum(fedadb.Algorithm[State]):
        beta: float = 0.9
        own_server_step = True

        def init(self, w):
            return State(w, w.zeros())

        def aggregate(self, s, replies, round):
            m = self.beta * s.m + (fedadb.average(replies) - s.w)
            return State(s.w + m, m)
    ```
    """

    # The record's key for the seconds spent in `broadcast`; None: not recorded.
    broadcast_seconds_key: ClassVar[str | None] = None
    # The names that `measure` returns. A server records no other measurement of a real site.
    measures: ClassVar[tuple[str, ...]] = ()
    # Whether `aggregate` has a server step of its own, beyond a mean of the clients' weights. Then
    # it takes no server optimiser.
    own_server_step: ClassVar[bool] = False
    # Whether `aggregate` needs single replies, and not only means or sums over them. Then it takes
    # no filter that replaces the replies by their robust mean.
    needs_single_replies: ClassVar[bool] = False
    # Whether clients keep a sum of their updates that must agree with the server's. Then it takes
    # no filter that compresses updates, because the server receives others than clients remember.
    remembers_updates: ClassVar[bool] = False

    # Parts of an upload that differ more between honest clients than weights do, and the power of
    # a server's bound on each. math.inf: no bound; then `implied` states it, or `aggregate` copes
    # with any finite value.
    spread: ClassVar[Mapping[str, float]] = {}

    @property
    def name(self) -> str:
        """What titles and messages call the method."""
        return type(self).__name__

    @property
    def default_clip(self) -> float | None:
        """The largest gradient norm if the plan's `clip` is "auto"; None: no clipping."""
        return None

    @property
    def mean_weights(self) -> Literal["rows", "uniform"] | None:
        """How `aggregate` weights replies in its mean; None: that mean is not all that it needs.

        Secure aggregation computes this mean of the weights, and nothing else.
        """
        return "rows"

    def check_plan(self, plan: LocalPlan) -> None:
        """Raise BadInput if the method cannot work with clients that train by this plan."""

    # model

    def heads(self, dim: int, classes: int) -> Mapping[str, nn.Module]:
        """The classifiers on top of `dim` features, by name; the first is deployed.

        `f(w, x, name)` computes with the head of that name, `f(w, x)` with the first.
        """
        return {"head": nn.Linear(dim, classes)}

    # server

    def init(self, w: Vector) -> S:
        """The state before the first round, given the initial weights."""
        return Weights(w)  # type: ignore[return-value]  # S defaults to Weights

    def broadcast(self, s: S, f: Model, rng: Stream) -> B:
        """What the clients of the coming round receive.

        `s` is the server's state, `f(w, x)` the model, and `rng.generator()` a generator for
        random numbers.

        In a real federation, the type of a broadcast of your own must be the return annotation.
        """
        return Weights(s.w)  # type: ignore[return-value]  # B defaults to Weights

    def aggregate(self, s: S, replies: Iterable[Reply[U]], round: Round) -> S:
        """The state after the round.

        `replies` is a stream in the order of the clients that can be read once: `average(replies)`
        reads it, and so does a loop with `Mean` and `Sum`. `reply.w` are a client's weights,
        `reply.upload` is what it uploaded, `reply.examples` its number of rows.
        """
        return s._replace(w=average(replies))  # type: ignore[attr-defined, no-any-return]

    def deployed(self, s: S) -> Vector:
        """The weights that are evaluated, and saved at the end."""
        return s.w

    def keep(self, sent: B, f: Model) -> Any:
        """The part of a broadcast to save for analyses, as a NamedTuple; None: nothing."""
        return None

    # client

    def memory(self, w: Vector) -> C:
        """A client's memory before its first round, given the weights that it then receives."""
        return ()  # type: ignore[return-value]  # C defaults to tuple[()]

    def start(self, ctx: Context[B, C]) -> Vector:
        """The weights at which local training starts.

        `ctx.sent.w` are those that the client received, `ctx.memory` is what it remembers.

        They may have more parts than the model, after its own: what a client trains and does not
        send. Then `upload` leaves those parts out.
        """
        return ctx.sent.w

    def batches(self, f: Model, data: Shard, ctx: Context[B, C], rng: Stream) -> Iterator[Any]:
        """The batch of each local step; only the algorithm itself looks inside.

        `data` are the client's rows: what needs a pass over them before training is computed here,
        and is added to the batches.
        """
        return ctx.plan.batches(data, rng)

    def measure(self, f: Model, batch: Any, ctx: Context[B, C]) -> Mapping[str, Tensor]:
        """Numbers for the record, computed before the first step and averaged over clients.

        `batch` is the first of `batches`; `f(ctx.sent.w, batch.x).logits` are the received model's
        predictions for it.
        """
        return {}

    def loss(self, f: Model, w: Vector, batch: Any, ctx: Context[B, C]) -> Tensor:
        """The loss that `gradient` differentiates.

        `f(w, batch.x).logits` are the model's predictions for the inputs and `.features` what they
        are computed from, `batch.y` are the labels, `ctx.sent.w` the weights that the client
        received, `ctx.counts` its number of rows of each class.
        """
        return F.cross_entropy(f(w, batch.x).logits, batch.y)

    def gradient(self, f: Model, w: Vector, batch: Any, ctx: Context[B, C]) -> Vector:
        """The direction that a local step descends: a new Vector, which the engine may modify.

        `w` are the client's weights before the step; `fedadb.core.vector.gradient(loss, w)` is the
        gradient of a function of them.
        """
        return gradient(lambda v: self.loss(f, v, batch, ctx), w)

    def decay(self, ctx: Context[B, C]) -> Tensor | float | None:
        """A weight decay of the method's own, which gradient clipping leaves out; None: none.

        It may depend on `ctx.round`, `ctx.counts` and what else the client knows.
        """
        return None

    def upload(self, f: Model, w: Vector, data: Shard, ctx: Context[B, C]) -> U:
        """What the client sends after it trained to the weights w.

        `data` are the client's rows: what needs a pass over them after training is computed here.
        Its tensors have the same shapes in every round. `ctx.memory` is still the old memory. A
        server of real sites drops a reply of which a part is much larger than usual; `spread` says
        of which parts that is no sign of a wrong one.
        """
        return Weights(w)  # type: ignore[return-value]  # U defaults to Weights

    def implied(self, plan: LocalPlan, rows: int) -> Mapping[str, float]:
        """The numbers of an upload that follow from the client's number of rows, by name.

        A server of real sites drops a reply that states another. If a site counts by fewer rows
        than it has, the server uses the numbers of those.
        """
        return {}

    def remember(self, w: Vector, upload: U, ctx: Context[B, C]) -> C:
        """The client's memory after it trained to the weights w and made this upload.

        `ctx.memory` is the old memory, `ctx.sent.w` the weights that the client received.
        """
        return ctx.memory

    def personal(self, f: Model, w: Vector, x: Tensor) -> Tensor | None:
        """The logits of the client's own head, given the weights w that it trained to.

        None: the method has no head for the client itself. `personal = true` evaluates it.
        """
        return None


def broadcast_kind(algorithm: Algorithm[Any, Any, Any, Any]) -> Any:
    """The type of the algorithm's broadcast, from the annotation of `broadcast`."""
    hook = type(algorithm).broadcast
    if hook is Algorithm.broadcast:
        return Weights
    kind = get_type_hints(hook).get("return")
    if not (isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")):
        raise BadInput(
            f"{type(algorithm).__name__}.broadcast needs a return annotation, such as "
            "`-> Weights`: sites must know the type of what they receive"
        )
    return kind


def upload_kind(algorithm: Algorithm[Any, Any, Any, Any]) -> Any:
    """The type of the algorithm's upload, from the annotation of `upload`; None: it has none."""
    hook = type(algorithm).upload
    if hook is Algorithm.upload:
        return Weights
    try:
        return get_type_hints(hook).get("return")
    except NameError:  # the user's own annotations may name what only a type checker imports
        return None
