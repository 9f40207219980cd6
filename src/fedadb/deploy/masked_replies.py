"""What a site sends with secure aggregation in place of its weights and of its evaluations."""

from collections.abc import Callable
from typing import Any

from fedadb.core.replies import Reply
from fedadb.core.vector import Vector
from fedadb.deploy.messages import Request
from fedadb.deploy.refusals import OUT_OF_RANGE, Refusal
from fedadb.deploy.reply_checks import SiteCounts
from fedadb.deploy.secure_site import SecureSite
from fedadb.experiment.config import Experiment
from fedadb.experiment.secure_aggregation import counts_alike
from fedadb.secagg.evaluation_words import evaluation_word_count, evaluation_words
from fedadb.secagg.fixed_point import Coding, Words
from fedadb.secagg.masks import EVALUATE, TRAIN
from fedadb.secagg.reply_words import OutOfRange, word_count, words_of


def masked_reply(
    secure: SecureSite,
    request: Request,
    order: str,
    e: Experiment,
    u: Vector,
    rows: int,
    train: Callable[[], Reply[Any]],
) -> bytes:
    """The masked words of the reply that `train` returns; it is called once per exchange.

    Args:
        secure: The site in this run.
        request: What the server asks for.
        order: The digest of the order.
        e: This site's copy of the experiment.
        u: The weights that the site received.
        rows: The site's number of rows.
        train: Trains the round.
    """
    secure.require_rows(rows)
    secure.require_own_number(request.client)
    clients, measures = len(secure.roster.public_keys), e.algorithm.measures
    coding = Coding(clients, request.round.examples, e.deployment.secure_range, counts_alike(e))
    count = word_count(u, measures)
    exchange = secure.exchange(request, order, coding.scale, count, TRAIN)

    def words() -> Words:
        try:
            return words_of(train(), u, coding, measures)
        except OutOfRange as error:
            raise Refusal(OUT_OF_RANGE, str(error)) from error

    return secure.masked(exchange, words)


def masked_counts(
    secure: SecureSite, request: Request, order: str, evaluate: Callable[[], SiteCounts]
) -> bytes:
    """The masked words of the evaluation that `evaluate` returns."""
    classes = len(request.data["classes"])
    exchange = secure.exchange(request, order, 0, evaluation_word_count(classes), EVALUATE)

    def words() -> Words:
        loss, correct, rows = evaluate()
        return evaluation_words(correct, rows, loss, len(exchange.sites))

    return secure.masked(exchange, words)
