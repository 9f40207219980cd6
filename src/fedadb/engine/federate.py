"""The federation itself: a generator that yields its state after each round.

Evaluating, recording and saving are what the caller does with what it yields.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, NamedTuple

from fedadb.core.algorithm import Algorithm, B, C, Reply, Round, S
from fedadb.core.errors import Fault
from fedadb.core.model import Model
from fedadb.core.stream import Stream
from fedadb.engine.cohorts import Cohort


class Snapshot(NamedTuple, Generic[S]):
    """A federation after round t; before the first round, t = 0."""

    round: Round
    server: S
    clients: Sequence[int] = ()  # who took part in the round
    replies: Sequence[Reply] = ()


def federate(
    algorithm: Algorithm[S, B, C],
    f: Model,
    cohort: Cohort[B],
    *,
    choose: Callable[[int], Sequence[int]],
    rng: Stream,
    start: Snapshot[S],
) -> Iterator[Snapshot[S]]:
    """The rounds after `start`; `choose(t)` names the clients of round t."""
    s = start.server
    for t in range(start.round.t + 1, start.round.total + 1):
        round = start.round._replace(t=t)
        sent = algorithm.broadcast(s, f, rng.at("server", t))
        clients = choose(t)
        replies = cohort(sent, clients, round)
        for k, reply in zip(clients, replies, strict=True):
            if not reply.w.flat.isfinite().all():
                raise Fault(
                    f"client {k} diverged in round {t}: its weights are no longer finite; "
                    "a lower local.lr may help"
                )
        s = algorithm.aggregate(s, replies, round)
        yield Snapshot(round, s, clients, replies)
