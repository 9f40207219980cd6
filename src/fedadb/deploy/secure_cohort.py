"""Sites as a cohort with secure aggregation: the server learns the mean of all replies only."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fedadb.core.algorithm import Round
from fedadb.core.errors import Fault
from fedadb.core.packing import pack
from fedadb.core.replies import MissingReply, Replies, Reply
from fedadb.deploy.all_sites import MaskUsed, add_words, ask_all, masked_words
from fedadb.deploy.messages import TRAIN, make_content, tensor_record
from fedadb.deploy.participants import Participants
from fedadb.engine.local import Learner
from fedadb.secagg.fixed_point import WORD_BYTES, Words
from fedadb.secagg.reply_words import NoSum, mean_reply, word_count


@dataclass(frozen=True)
class SecureCohort:
    """Trains all clients at their sites, and decodes the sum of their masked replies."""

    learner: Learner[Any, Any, Any, Any]
    sites: Participants
    last_used: Mapping[int, int]  # the last round in which each client's reply was used
    on_status: Callable[[str], None] = lambda status: None

    def __call__(
        self, sent: Any, clients: Sequence[int], round: Round
    ) -> Replies[Reply[Any] | MissingReply]:
        m, measures = len(clients), self.learner.algorithm.measures
        coding, words = self.sites.coding, word_count(sent.w, measures)
        total = sum_of_attempts(self.sites, partial(self._sum, sent, round, words))
        try:
            mean = mean_reply(total, sent.w, coding, measures)
        except NoSum as error:
            self.sites.raise_attempt()
            raise void(f"round {round.t}", error) from error
        return Replies([mean] * m, [1] * m, m, received=words * WORD_BYTES)

    def _sum(self, sent: Any, round: Round, words: int) -> Words:
        tensors = tensor_record(pack(sent))
        answers = ask_all(
            self.sites,
            TRAIN,
            f"round {round.t}",
            lambda k: make_content(self.sites.request(k, round, self.last_used.get(k, 0)), tensors),
            lambda reply: masked_words(reply, words),
            self.on_status,
            group=str(round.t),
        )
        return add_words(answers)


def sum_of_attempts(sites: Participants, ask: Callable[[], Words]) -> Words:
    """The sum of all sites' words; a new attempt if a site cannot mask again what it masked."""
    for _ in range(sites.experiment.deployment.retries):
        try:
            return ask()
        except MaskUsed:
            sites.raise_attempt()
    return ask()


def void(what: str, error: NoSum) -> Fault:
    """The error for words that are no sum."""
    return Fault(
        f"{what} is void: {error}; either the sites did not all receive the same, or one of them "
        "sent a wrong reply; the same command asks all of them again"
    )
