"""A cohort of which some clients are attackers."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fedadb.core.algorithm import Round
from fedadb.core.attack import Attack, moments
from fedadb.core.replies import MissingReply, Replies, Reply, update_of, weights_after
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector
from fedadb.engine.cohorts import Cohort

Answers = Iterable[Reply[Any] | MissingReply]


@dataclass(frozen=True)
class Attacked:
    """Trains clients in another cohort, and replaces what the attackers among them send.

    They do so after the clients' ends of filters: an attacker does not clip its own update.
    """

    cohort: Cohort[Any]
    attack: Attack
    attackers: frozenset[int]
    rng: Stream

    def __call__(
        self, sent: Any, clients: Sequence[int], round: Round
    ) -> Replies[Reply[Any] | MissingReply]:
        answers = self.cohort(sent, clients, round)
        replace = self._together if self.attack.acts_together else self._alone
        stream = replace(answers, sent.w, clients, round, answers.rows)
        return Replies(stream, answers.rows, answers.needed)

    def _alone(
        self, answers: Answers, u: Vector, clients: Sequence[int], round: Round, rows: Sequence[int]
    ) -> Iterator[Reply[Any] | MissingReply]:
        """The answers, each replaced as it arrives."""
        for k, n, answer in zip(clients, rows, answers, strict=True):
            if k in self.attackers and isinstance(answer, Reply):
                own = update_of(answer, u)
                rng = self.rng.at("attack", round.t, k)
                forged = self.attack.update(own, n, sum(rows), rng)
                yield answer if forged is own else answer.with_weights(weights_after(forged, u))
            else:
                yield answer

    def _together(
        self, answers: Answers, u: Vector, clients: Sequence[int], round: Round, rows: Sequence[int]
    ) -> Iterator[Reply[Any] | MissingReply]:
        """The answers, replaced when the honest ones are known."""
        known = list(answers)
        replies = [
            (k, one) for k, one in zip(clients, known, strict=True) if isinstance(one, Reply)
        ]
        honest = [one for k, one in replies if k not in self.attackers]
        attackers = len(replies) - len(honest)
        if not honest or not attackers:
            yield from known
            return
        w = weights_after(self.attack.common_update(moments(honest, u), attackers), u)
        for k, answer in zip(clients, known, strict=True):
            if k in self.attackers and isinstance(answer, Reply):
                answer = answer.with_weights(w)
            yield answer
