"""Clients stacked under vmap do what they do one by one."""

from typing import Any

import pytest
import torch

from fedadb.algorithms import ALGORITHMS
from fedadb.core.stream import Stream
from fedadb.engine.cohorts import OneByOne
from fedadb.engine.local import Learner
from fedadb.engine.stacked import Stacked
from tests.engine.test_pool import PLAN, play
from tests.test_every_algorithm import model, shards


@pytest.mark.parametrize("name", ALGORITHMS)
def test_stacked_is_one_by_one_but_for_rounding(name: str) -> None:
    algorithm = ALGORITHMS[name]()
    cohorts: list[Any] = [
        kind(Learner(algorithm, model(algorithm), PLAN), shards(), Stream(1))
        for kind in (OneByOne, Stacked)
    ]
    for plain, stacked in zip(*(play(algorithm, cohort) for cohort in cohorts), strict=True):
        torch.testing.assert_close(stacked.server.w.flat, plain.server.w.flat, atol=2e-5, rtol=1e-4)
        for ours, theirs in zip(stacked.replies, plain.replies, strict=True):
            assert ours.examples == theirs.examples
            assert str(dict(ours.measured)) == str(dict(theirs.measured))
    assert sorted(cohorts[0].memories) == sorted(cohorts[1].memories)
