"""The federation's loop: a generator that yields the federation's state after each round.

Evaluating, recording and saving are up to the caller.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Generic, NamedTuple

from fedadb.core.algorithm import B, C, Round, S
from fedadb.core.errors import BadInput, Diverged, Fault
from fedadb.core.filter import NOT_FINITE, Filter, receive_through, restore
from fedadb.core.packing import pack, shapes, size
from fedadb.core.replies import MissingReply, Replies, Reply, U
from fedadb.core.server_optimizers import ServerOptimizer
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector, Weights, is_finite
from fedadb.engine.cohorts import Cohort
from fedadb.engine.local import Learner
from fedadb.engine.process import one_thread
from fedadb.filters.dp import DP
from fedadb.filters.mechanism import Mechanism


class ReplyNote(NamedTuple):
    """What is known of a client's reply after the round: the reply itself is released."""

    bytes: int  # of what the client sent
    examples: int  # n_k
    measured: Mapping[str, float]
    inspected: Any = None  # what `inspect` returned


class Snapshot(NamedTuple, Generic[S]):
    """A federation after round t, or with t = 0 before the first round."""

    round: Round
    server: S
    optimizer_state: Any = ()  # of the server's optimiser
    filter_states: tuple[Any, ...] = ()  # what the server keeps for each filter
    mechanism_state: Any = ()  # of the mechanism, if the federation is differentially private
    sent: Any = None  # the round's broadcast
    clients: Sequence[int] = ()  # those whose replies were used
    replies: Sequence[ReplyNote] = ()  # of these clients
    lost: Mapping[int, str] = MappingProxyType({})  # clients without a usable reply, and why
    broadcast_seconds: float = 0.0  # the time that the server took to compute the broadcast
    # of an upload's tensors, by name, which never change; empty: uploads are weights alone
    upload_shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({})


def initial(
    learner: Learner[S, B, C, U],
    before: Round,
    optimizer: ServerOptimizer | None = None,
    mechanism: Mechanism | None = None,
) -> Snapshot[S]:
    """A federation before its first round, with the model's initial weights.

    ```python
    before = fedadb.Round(t=0, total=20, clients=8, examples=2000)
    start = fedadb.initial(learner, before)
    ```
    """
    w = learner.f.weights()
    return Snapshot(
        before,
        learner.algorithm.init(w),
        optimizer.init(w) if optimizer else (),
        tuple(one.init(w) for one in learner.filters),
        mechanism.init() if mechanism else (),
    )


def federate(
    learner: Learner[S, B, C, U],
    cohort: Cohort[B],
    *,
    choose: Callable[[int], Sequence[int]],
    rng: Stream,
    start: Snapshot[S],
    optimizer: ServerOptimizer | None = None,
    inspect: Callable[[Reply[U]], Any] = lambda reply: None,
    mechanism: Mechanism | None = None,
) -> Iterator[Snapshot[S]]:
    """Train the rounds after `start`, and yield a Snapshot after each.

    While the generator is active, torch computes in one thread. A round may have no clients: then
    the server stays as it is, unless a mechanism adds noise.

    Args:
        learner: The algorithm, the model, the local plan and the filters.
        cohort: Trains the clients of a round.
        choose: The clients of round t.
        rng: The federation's random stream.
        start: Where to begin; `start.round.total` is the last round.
        optimizer: Takes the server's step towards what the algorithm aggregates; None: all of it.
        inspect: Called with each reply as it arrives; its results are in the Snapshot.
        mechanism: Makes the federation differentially private; the filter DP needs it.

    ```python
    algorithm, rows = learner.algorithm, sum(len(shard) for shard in shards)
    before = fedadb.Round(t=0, total=20, clients=len(shards), examples=rows)
    start = fedadb.initial(learner, before)
    for now in fedadb.federate(learner, cohort, choose=lambda t: [0, 3], rng=rng, start=start):
        w = algorithm.deployed(now.server)
    ```
    """
    algorithm, f, plan = learner.algorithm, learner.f, learner.plan
    s, optimizer_state, states = start.server, start.optimizer_state, list(start.filter_states)
    mechanism_state, name = start.mechanism_state, algorithm.name
    if mechanism is None and any(isinstance(one, DP) for one in learner.filters):
        raise BadInput("the filter DP adds no noise by itself; give federate its mechanism")
    upload_shapes = start.upload_shapes
    with one_thread():
        for t in range(start.round.t + 1, start.round.total + 1):
            round = start.round._replace(t=t, lr_factor=plan.lr_factor(t, start.round.total))
            began = time.perf_counter()
            try:
                sent = algorithm.broadcast(s, f, rng.at("server", t))
            except (BadInput, Fault) as error:
                raise type(error)(f"{name}: the server in round {t}: {error}") from error
            broadcast_seconds = time.perf_counter() - began
            chosen = choose(t)
            answers = cohort(sent, chosen, round) if chosen else Replies((), (), needed=0)
            arrivals = _Arrivals(name, round, chosen, inspect, upload_shapes, answers.needed)
            if mechanism is not None:
                arrivals.tolerate_any()
            noted = arrivals.note(answers, learner.filters, sent.w)
            filtered = receive_through(learner.filters, noted, states, sent.w, round)
            usable = arrivals.select(filtered)
            replies: Replies[Reply[Any]] = Replies(usable, answers.rows)
            if mechanism is not None:
                replies, mechanism_state = mechanism.release(usable, mechanism_state, sent.w, t)
            if chosen or mechanism is not None:
                proposal = algorithm.aggregate(s, replies, round)
                for _ in usable:  # `aggregate` may have stopped early; every client is trained
                    pass
                if optimizer is None:
                    s = proposal
                else:
                    w, optimizer_state = optimizer.step(s.w, proposal.w, optimizer_state, round)
                    s = proposal._replace(w=w)  # type: ignore[attr-defined]
            upload_shapes = arrivals.shapes
            _require_finite(s, f"{name}: the server diverged in round {t}")
            yield Snapshot(
                round,
                s,
                optimizer_state,
                tuple(states),
                mechanism_state,
                sent,
                arrivals.used,
                [arrivals.notes[k] for k in arrivals.used],
                arrivals.lost,
                broadcast_seconds,
                upload_shapes,
            )


@dataclass
class _Arrivals:
    """Takes notes of a round's replies while they are passed on."""

    name: str  # of the algorithm
    round: Round
    clients: Sequence[int]
    inspect: Callable[[Reply[Any]], Any]
    shapes: Mapping[str, tuple[int, ...]]  # of an upload's tensors; empty before the first one
    needed: int  # the replies that a round needs
    drops_diverged: bool = False  # whether a reply that is not finite is lost, not the whole run
    notes: dict[int, ReplyNote] = field(default_factory=dict)
    used: list[int] = field(default_factory=list)
    lost: dict[int, str] = field(default_factory=dict)

    def tolerate_any(self) -> None:
        """Let no client decide whether the run continues: that would not be private."""
        self.needed, self.drops_diverged = 0, True

    def note(
        self,
        answers: Replies[Reply[Any] | MissingReply],
        filters: Sequence[Filter],
        u: Vector,
    ) -> Iterator[Any]:
        """The answers as they arrive, but not compressed; a note is taken of each reply."""
        for k, answer in zip(self.clients, answers, strict=True):
            if isinstance(answer, Reply):
                received = size(answer) if answers.received is None else answers.received
                answer = restore(filters, answer, u)
                self._require_same_shapes(k, answer)
                measured = {name: float(value) for name, value in answer.measured.items()}
                self.notes[k] = ReplyNote(
                    received, int(answer.examples), measured, self.inspect(answer)
                )
            yield answer

    def select(self, answers: Iterable[Reply[Any] | MissingReply]) -> Iterator[Reply[Any]]:
        """The replies that the server uses."""
        for k, answer in itertools.zip_longest(self.clients, answers):
            if k is None or answer is None:
                raise BadInput("a filter's `incoming` must yield a reply for each reply")
            if self.drops_diverged and isinstance(answer, Reply) and not is_finite(answer.w.flat):
                answer = NOT_FINITE
            if isinstance(answer, MissingReply):
                self.lost[k] = answer.reason
                continue
            diverged = f"{self.name}: client {k} diverged in round {self.round.t}"
            _require_finite(answer.upload, diverged)
            self.used.append(k)
            yield answer
        if len(self.used) < self.needed:
            reasons = "; ".join(f"client {k}: {reason}" for k, reason in self.lost.items())
            raise Fault(
                f"{self.name}: round {self.round.t} has {len(self.used)} usable replies, but "
                f"{self.needed} are needed ({reasons})"
            )

    def _require_same_shapes(self, k: int, reply: Reply[Any]) -> None:
        if isinstance(reply.upload, Weights):  # the model's, wherever they are used
            return
        found = shapes(reply.upload)
        self.shapes = self.shapes or found
        for path in found.keys() | self.shapes.keys():
            if found.get(path) != self.shapes.get(path):
                raise BadInput(
                    f"{self.name}: client {k} in round {self.round.t}: {path} of its upload has "
                    f"shape {found.get(path)}, and {self.shapes.get(path)} in an earlier upload; "
                    "the shapes of uploads must not change"
                )


def _require_finite(tree: Any, otherwise: str) -> None:
    """Raise Diverged if a number of the server's state or of an upload is not finite."""
    for name, part in zip(tree._fields, tree, strict=True):
        tensors = [part.flat] if isinstance(part, Vector) else pack(part, name).values()
        if not all(is_finite(tensor) for tensor in tensors):
            what = "weights" if name == "w" else name
            raise Diverged(
                f"{otherwise}: its {what} are no longer finite; a lower local.lr or milder "
                "settings of the algorithm may help"
            )
