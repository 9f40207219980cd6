"""The federation's loop: a generator that yields the federation's state after each round.

Evaluating, recording and saving are up to the caller.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, NamedTuple

from fedadb.core.algorithm import B, C, Reply, Round, S
from fedadb.core.errors import BadInput, Fault
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector
from fedadb.engine.cohorts import Cohort, MissingReply
from fedadb.engine.local import Learner
from fedadb.engine.process import one_thread


class Snapshot(NamedTuple, Generic[S]):
    """A federation after round t, or with t = 0 before the first round."""

    round: Round
    server: S
    sent: Any = None  # the round's broadcast
    clients: Sequence[int] = ()  # those that replied
    replies: Sequence[Reply] = ()
    lost: Mapping[str, str] = MappingProxyType({})  # clients without a valid reply, and why
    broadcast_seconds: float = 0.0  # the time that the server took to compute the broadcast


def federate(
    learner: Learner[S, B, C],
    cohort: Cohort[B],
    *,
    choose: Callable[[int], Sequence[int]],
    rng: Stream,
    start: Snapshot[S],
) -> Iterator[Snapshot[S]]:
    """Train the rounds after `start`, and yield a Snapshot after each.

    While the generator is active, torch computes in one thread.

    Args:
        learner: The algorithm, the model and the local plan.
        cohort: Trains the clients of a round.
        choose: The clients of round t.
        rng: The federation's random stream.
        start: Where to begin; `start.round.total` is the last round.

    ```python
    algorithm, rows = learner.algorithm, sum(len(shard) for shard in shards)
    before = fedadb.Round(t=0, total=20, clients=len(shards), examples=rows)
    start = fedadb.Snapshot(before, algorithm.init(f.weights()))
    for now in fedadb.federate(learner, cohort, choose=lambda t: [0, 3], rng=rng, start=start):
        w = algorithm.deployed(now.server)
    ```
    """
    algorithm, f, plan = learner.algorithm, learner.f, learner.plan
    s, name = start.server, type(algorithm).__name__
    with one_thread():
        for t in range(start.round.t + 1, start.round.total + 1):
            round = start.round._replace(t=t, lr_factor=plan.lr_factor(t))
            began = time.perf_counter()
            try:
                sent = algorithm.broadcast(s, f, rng.at("server", t))
            except (BadInput, Fault) as error:
                raise type(error)(f"{name}: the server in round {t}: {error}") from error
            broadcast_seconds = time.perf_counter() - began
            chosen = choose(t)
            answers = dict(zip(chosen, cohort(sent, chosen, round), strict=True))
            replies = {k: reply for k, reply in answers.items() if isinstance(reply, Reply)}
            lost = {a.client: a.reason for a in answers.values() if isinstance(a, MissingReply)}
            for k, reply in replies.items():
                _require_finite(reply.w, f"{name}: client {k} diverged in round {t}")
            s = algorithm.aggregate(s, list(replies.values()), round)
            _require_finite(s.w, f"{name}: the server diverged in round {t}")
            yield Snapshot(
                round, s, sent, list(replies), list(replies.values()), lost, broadcast_seconds
            )


def _require_finite(w: Vector, otherwise: str) -> None:
    if not w.flat.isfinite().all():
        raise Fault(
            f"{otherwise}: its weights are no longer finite; a lower local.lr or milder settings "
            "of the algorithm may help"
        )
