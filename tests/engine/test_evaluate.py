import math

import pytest
import torch
import torch.nn.functional as F

from fedadb.core.transform import Transform
from fedadb.engine.evaluate import (
    ImmediateEvaluator,
    TestSet,
    evaluate,
    in_and_out_of_distribution,
    mixed_order,
)
from tests.conftest import toy_model, toy_shard


def test_scores_are_those_of_one_big_batch() -> None:
    f, data = toy_model(classes=4), toy_shard(rows=31)
    w = f.weights()
    scores = evaluate(f, w, data.examples, data.transform, batch_size=7)
    logits = f(w, data.transform.normalise(data.examples.x)).logits
    hit = logits.argmax(1) == data.examples.y
    assert math.isclose(scores.accuracy, hit.sum().item() / 31)
    assert math.isclose(scores.loss, F.cross_entropy(logits, data.examples.y).item(), rel_tol=1e-5)
    for c in range(3):
        of_class = hit[data.examples.y == c]
        assert math.isclose(scores.class_accuracy[c], of_class.sum().item() / len(of_class))
    assert math.isnan(scores.class_accuracy[3])


def test_the_mixed_order_is_fixed_and_mixes() -> None:
    once = mixed_order(1000)
    assert torch.equal(once, mixed_order(1000))
    assert sorted(once.tolist()) == list(range(1000))
    assert all(len(set(part.tolist())) >= 8 for part in torch.split(once // 100, 100))


def test_scores_of_each_domain_and_each_class_over_all_of_them() -> None:
    f, data = toy_model(classes=4), toy_shard(rows=31)
    w, domain = f.weights(), torch.arange(31) % 3
    evaluator = ImmediateEvaluator(TestSet(f, data.examples, data.transform, 7, domain))
    evaluator.start(w)
    scores = evaluator.scores()
    hit = f(w, data.transform.normalise(data.examples.x)).logits.argmax(1) == data.examples.y
    expected = [hit[domain == d].double().mean().item() for d in range(3)]
    assert scores.domain_accuracy == pytest.approx(expected)
    plain = evaluate(f, w, data.examples, data.transform, 7)
    assert scores.class_accuracy[:3] == plain.class_accuracy[:3]
    assert (scores.accuracy, plain.domain_accuracy) == (plain.accuracy, ())


def test_evaluation_does_not_augment() -> None:
    f, data = toy_model(), toy_shard()
    rough = Transform(mean=(0.5,), std=(0.5,), pad=2, flip=True, cutout=3)
    w = f.weights()
    assert evaluate(f, w, data.examples, rough, 8) == evaluate(
        f, w, data.examples, data.transform, 8
    )


def test_what_is_known_of_own_classes_and_of_others_by_hand() -> None:
    """P = (3/4, 1/4, 0): .75 · .8 + .25 · .4 = .7; (.25 · .8 + .75 · .4 + 1 · .1) / 2 = .3."""
    assert in_and_out_of_distribution([0.8, 0.4, 0.1], [3, 1, 0]) == pytest.approx((0.7, 0.3))
    assert in_and_out_of_distribution([0.8, 0.4, math.nan], [3, 1, 0]) == pytest.approx((0.7, 0.25))
