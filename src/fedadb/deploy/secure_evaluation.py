"""Evaluation by the sites with secure aggregation: the server learns the sum over all sites."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from fedadb.core.errors import Fault
from fedadb.core.packing import pack
from fedadb.core.vector import Vector, Weights
from fedadb.deploy.all_sites import add_words, ask_all, masked_words
from fedadb.deploy.messages import EVALUATE, NO_ROUND, make_content, tensor_record
from fedadb.deploy.participants import Participants
from fedadb.deploy.secure_cohort import sum_of_attempts, void
from fedadb.engine.evaluate import Scores, TestSet, share
from fedadb.secagg.evaluation_words import PooledCounts, evaluation_word_count, pooled_counts
from fedadb.secagg.fixed_point import Words
from fedadb.secagg.reply_words import NoSum

POOLED = "all sites"  # what a record has an accuracy of, in place of one per site


@dataclass
class SecureEvaluator:
    """Evaluates weights on the test images of all sites together.

    If the server has a test set of its own, the scores are the server's, beside that accuracy.
    """

    sites: Participants
    test_set: TestSet | None
    on_status: Callable[[str], None] = lambda status: None
    in_background: bool = False
    _w: Vector | None = None

    def start(self, w: Vector) -> None:
        self._w = w

    def scores(self) -> Scores:
        assert self._w is not None, "`start` comes first"
        try:
            pooled = pooled_scores(self._counts(self._w))
        except Fault as error:
            if self.test_set is None:
                raise
            self.on_status(f"no evaluation by the sites: {error}")
            pooled = Scores(math.nan, math.nan, [])
        scores = self.test_set.evaluate(self._w) if self.test_set else pooled
        return scores._replace(domain_accuracy=[pooled.accuracy])

    def _counts(self, w: Vector) -> PooledCounts:
        classes, m = len(self.sites.spec.classes), len(self.sites.names)
        total = sum_of_attempts(self.sites, partial(self._sum, w, evaluation_word_count(classes)))
        try:
            return pooled_counts(total, classes, m)
        except NoSum as error:
            self.sites.raise_attempt()
            raise void("the evaluation", error) from error

    def _sum(self, w: Vector, words: int) -> Words:
        tensors = tensor_record(pack(Weights(w)))
        content = make_content(self.sites.request(-1, NO_ROUND), tensors)
        answers = ask_all(
            self.sites,
            EVALUATE,
            "evaluation",
            lambda k: content,
            lambda reply: masked_words(reply, words),
        )
        return add_words(answers)


def pooled_scores(counts: PooledCounts) -> Scores:
    """The scores on all test images, whichever site has them."""
    rows = sum(counts.rows)
    if not rows:
        raise Fault("no site has test images of its own; set deployment.evaluate = 'server'")
    return Scores(
        accuracy=share(counts.correct, counts.rows),
        loss=counts.loss / rows,
        class_accuracy=[share([c], [n]) for c, n in zip(counts.correct, counts.rows, strict=True)],
    )
