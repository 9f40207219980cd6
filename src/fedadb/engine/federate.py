"""The federation itself: a generator that yields its state after each round.

Evaluating, recording and saving are what the caller does with what it yields.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, NamedTuple

from fedadb.core.algorithm import Algorithm, B, C, Reply, Round, S
from fedadb.core.errors import BadInput, Fault
from fedadb.core.model import Model
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector
from fedadb.engine.cohorts import Cohort, Lost


class Snapshot(NamedTuple, Generic[S]):
    """A federation after round t; before the first round, t = 0."""

    round: Round
    server: S
    sent: Any = None  # what the clients of the round received
    clients: Sequence[int] = ()  # those of them who replied
    replies: Sequence[Reply] = ()
    lost: Mapping[str, str] = MappingProxyType({})  # those who did not, and why
    broadcast_seconds: float = 0.0  # what the server took to make what it sent


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
    s, name = start.server, type(algorithm).__name__
    for t in range(start.round.t + 1, start.round.total + 1):
        round = start.round._replace(t=t)
        began = time.perf_counter()
        try:
            sent = algorithm.broadcast(s, f, rng.at("server", t))
        except (BadInput, Fault) as error:
            raise type(error)(f"{name}: the server in round {t}: {error}") from error
        broadcast_seconds = time.perf_counter() - began
        chosen = choose(t)
        came = dict(zip(chosen, cohort(sent, chosen, round), strict=True))
        replies = {k: reply for k, reply in came.items() if isinstance(reply, Reply)}
        lost = {reply.who: reply.reason for reply in came.values() if isinstance(reply, Lost)}
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
