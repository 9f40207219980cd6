"""A cohort whose replies are masked and summed, as those of real sites with secure aggregation."""

import hashlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedadb.core.algorithm import Round
from fedadb.core.errors import Fault
from fedadb.core.packing import pack
from fedadb.core.replies import MissingReply, Replies, Reply, update_of
from fedadb.engine.cohorts import Cohort, naming_client
from fedadb.secagg.fixed_point import WORD_BYTES, Coding, Numbers, Words, to_numbers
from fedadb.secagg.keys import make_private_key, pair_keys, public_key
from fedadb.secagg.masks import Exchange, mask
from fedadb.secagg.reply_words import mean_reply, reply_words, word_count
from fedadb.storage.tensorfile import raw_bytes


@dataclass(frozen=True)
class SecurelySummed:
    """Trains clients in another cohort, and passes on the mean of their replies only.

    Each client is a site with a key of its own in this process. The keys are new ones in every
    process: the sum does not depend on them.
    """

    cohort: Cohort[Any]
    run: str
    pair_keys: Mapping[str, Mapping[str, bytes]]  # of each client, by name
    largest: float  # change of a weight
    uniform: bool  # whether all clients count alike
    measures: Sequence[str]

    @staticmethod
    def of(
        cohort: Cohort[Any], clients: int, largest: float, uniform: bool, measures: Sequence[str]
    ) -> "SecurelySummed":
        """The cohort of that many clients, with new keys."""
        run = secrets.token_hex(16)
        private = {str(k): make_private_key() for k in range(clients)}
        public = {name: public_key(key) for name, key in private.items()}
        pairs = {name: pair_keys(run, name, key, public) for name, key in private.items()}
        return SecurelySummed(cohort, run, pairs, largest, uniform, measures)

    def __call__(
        self, sent: Any, clients: Sequence[int], round: Round
    ) -> Replies[Reply[Any] | MissingReply]:
        answers = self.cohort(sent, clients, round)
        m, words = len(clients), word_count(sent.w, self.measures)
        coding = Coding(m, sum(answers.rows), self.largest, self.uniform)
        stream = self._sum(answers, sent, clients, round, coding)
        return Replies(stream, [1] * m, m, received=words * WORD_BYTES)

    def _sum(
        self,
        answers: Replies[Reply[Any] | MissingReply],
        sent: Any,
        clients: Sequence[int],
        round: Round,
        coding: Coding,
    ) -> Iterator[Reply[Any]]:
        """The mean reply, once per client, when all have replied."""
        names, words = tuple(map(str, clients)), word_count(sent.w, self.measures)
        exchange = Exchange(self.run, names, round.t, 0, _digest(sent), coding.scale, words)
        total, exact = np.zeros(words, dtype=np.uint32), np.zeros(sent.w.flat.numel())
        for k, answer in zip(clients, answers, strict=True):
            with naming_client(k, round):
                if isinstance(answer, MissingReply):
                    raise Fault(f"{answer.reason}; secure aggregation needs all replies")
                plain = reply_words(answer, sent.w, coding, self.measures)
                total += mask(plain, str(k), self.pair_keys[str(k)], exchange)
                n = coding.weight(int(answer.examples))
                exact += n * update_of(answer, sent.w).cpu().numpy()
        _require_sum(total[: len(exact)], exact, coding)
        mean = mean_reply(total, sent.w, coding, self.measures)
        yield from [mean] * len(clients)


def _require_sum(total: Words, exact: Numbers, coding: Coding) -> None:
    """Raise Fault unless the words are Σ n_k Δ_k but for rounding, by half a word per client.

    Only a simulation can compare them: it has all replies.
    """
    bound = coding.clients * 2.0 ** -(coding.scale + 1)
    error = float(np.abs(to_numbers(total, coding.scale) - exact).max())
    if error > bound * (1 + 1e-6):
        raise Fault(
            f"secure aggregation is wrong by {error:.3g}, where rounding explains {bound:.3g}; "
            "please report this"
        )


def _digest(sent: Any) -> str:
    digest = hashlib.sha256()
    for tensor in pack(sent).values():
        digest.update(raw_bytes(tensor.cpu()))
    return digest.hexdigest()
