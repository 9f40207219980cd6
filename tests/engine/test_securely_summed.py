"""A simulation with secure aggregation: what algorithms make of the mean alone."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from fedadb.algorithms import ALGORITHMS
from fedadb.algorithms.fedadb import FedADB
from fedadb.core.algorithm import Algorithm, Round
from fedadb.core.errors import Diverged, Fault
from fedadb.core.replies import MissingReply, Replies, Reply
from fedadb.core.vector import Vector, Weights
from fedadb.engine.securely_summed import SecurelySummed
from fedadb.experiment.config import Experiment
from fedadb.experiment.named_algorithms import to_algorithm
from fedadb.experiment.secure_aggregation import counts_alike
from fedadb.secagg import reply_words
from fedadb.secagg.fixed_point import Numbers, Words
from tests.secagg.clients import make_replies

ROUND = Round(2, 3, 5, 12_000)
FEDERATION = {"clients": 5, "participation": 1.0}
REFUSED = {"feddyn", "fedexp", "scaffold", "fednova", "fedcurv", "feddisco"}
ALLOWED: list[Any] = [
    *sorted(ALGORITHMS.keys() - REFUSED),
    "fedadam",
    {"name": "feddyn", "variant": "official"},
    {"name": "fedacg", "weighted": False},
]


def summed(
    replies: Sequence[Reply[Any] | MissingReply], uniform: bool = False, measures: Any = ()
) -> SecurelySummed:
    rows = [int(reply.examples) for reply in replies if isinstance(reply, Reply)]
    return SecurelySummed.of(
        lambda sent, clients, round: Replies([replies[k] for k in clients], rows),
        len(replies),
        1.0,
        uniform,
        measures,
    )


@pytest.mark.parametrize("given", ALLOWED, ids=str)
def test_an_algorithm_does_the_same_with_the_mean_as_with_all_replies(given: Any) -> None:
    e = Experiment(algorithm=given, federation=FEDERATION, deployment={"secure_aggregation": True})
    algorithm: Algorithm[Any, Any, Any, Any] = to_algorithm(given)
    u, replies = make_replies(5, numbers=200)
    server = algorithm.init(u)
    answers = summed(replies, counts_alike(e))(Weights(u), [3, 0, 1, 4, 2], ROUND)
    secure = algorithm.aggregate(server, answers, ROUND)  # type: ignore[arg-type]
    plain = algorithm.aggregate(server, replies, ROUND)
    assert not torch.equal(plain.w.flat, u.flat)
    torch.testing.assert_close(secure.w.flat, plain.w.flat, rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_all_other_algorithms_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"algorithm: .*secure_aggregation .*; drop it, or choose"):
        Experiment(algorithm=name, federation=FEDERATION, deployment={"secure_aggregation": True})


def test_the_result_depends_neither_on_keys_nor_on_the_order() -> None:
    u, replies = make_replies(4)
    results = [
        next(iter(summed(replies)(Weights(u), order, ROUND)))
        for order in ([0, 1, 2, 3], [0, 1, 2, 3], [2, 3, 1, 0])
    ]
    assert all(isinstance(one, Reply) for one in results)
    assert len({one.w.flat.numpy().tobytes() for one in results if isinstance(one, Reply)}) == 1


def test_each_client_counts_as_a_reply_of_the_same_words() -> None:
    measured = {"tau": torch.tensor(0.5), "other": torch.tensor(1.0)}
    u, replies = make_replies(3, numbers=10, measured=measured)
    answers = summed(replies, measures=FedADB.measures)(Weights(u), [0, 1, 2], ROUND)
    assert answers.received == 4 * (10 + 1 + 2 * len(FedADB.measures))
    one, *others = answers
    assert isinstance(one, Reply)
    assert others == [one, one]
    assert float(one.measured["tau"]) == 0.5
    assert one.measured.keys() == set(FedADB.measures)


def test_a_missing_reply_ends_the_round() -> None:
    u, replies = make_replies(3, numbers=10)
    missing: list[Any] = [replies[0], MissingReply("is away"), replies[2]]
    with pytest.raises(Fault, match="client 1 in round 2: is away; secure aggregation needs all"):
        list(summed(missing, uniform=True)(Weights(u), [0, 1, 2], ROUND))


def test_a_divergence_names_the_client() -> None:
    u, replies = make_replies(3, numbers=10)
    replies[1] = replies[1].with_weights(Vector(u.flat * torch.nan, u.layout))
    with pytest.raises(Diverged, match="client 1 in round 2: its weights are no longer finite"):
        list(summed(replies)(Weights(u), [0, 1, 2], ROUND))


def test_a_wrong_sum_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words that are rounded down are off by up to one each, and not by half."""
    u, replies = make_replies(3)

    def rounded_down(numbers: Numbers, scale: int) -> Words:
        return np.floor(numbers * 2.0**scale).astype(np.int64).astype(np.uint32)

    assert len(list(summed(replies)(Weights(u), [0, 1, 2], ROUND))) == 3
    monkeypatch.setattr(reply_words, "to_words", rounded_down)
    with pytest.raises(Fault, match=r"secure aggregation is wrong by .*, where rounding explains"):
        list(summed(replies)(Weights(u), [0, 1, 2], ROUND))
