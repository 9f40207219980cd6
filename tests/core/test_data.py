import torch

from fedadb.core.data import LocalPlan, Shard
from fedadb.core.schedules import Exponential
from fedadb.core.stream import Stream
from fedadb.core.transform import Bounded, Transform
from tests.conftest import toy_shard


def test_an_epoch_shows_every_row_once() -> None:
    whole = toy_shard(rows=24)
    data = Shard(whole.examples, torch.arange(0, 24, 2), 3, whole.transform)
    plan = LocalPlan(epochs=2, batch_size=5)
    batches = list(plan.batches(data, Stream(0)))
    assert [len(b.y) for b in batches] == [5, 5, 2] * 2
    for epoch in (batches[:3], batches[3:]):
        seen = torch.cat([b.x for b in epoch]).flatten(1).sum(1).sort().values
        expected = data.transform.normalise(whole.examples.x[::2]).flatten(1).sum(1).sort().values
        torch.testing.assert_close(seen, expected)
    assert not torch.equal(batches[0].x, batches[3].x)


def test_counts_cover_classes_that_are_missing() -> None:
    whole = toy_shard(rows=9)
    data = Shard(whole.examples, torch.tensor([0, 3, 1]), 4, whole.transform)
    assert data.counts.tolist() == [2, 1, 0, 0]
    assert len(data) == 3


def test_the_learning_rate_decays_after_each_round() -> None:
    plan = LocalPlan(lr=0.01, schedule=Exponential(decay=0.99))
    assert plan.lr_at(1, total=3) == 0.01
    assert plan.lr_at(3, total=3) == 0.01 * 0.99**2


def test_a_plan_can_leave_images_as_they_are() -> None:
    images = Transform((0.4,), (0.2,), zoom=0.5, pad=2, pad_mode="reflect", flip=True, cutout=3)
    assert LocalPlan().preprocessing(images) == images
    plain = LocalPlan(augment=False).preprocessing(images)
    x = torch.randint(256, (4, 1, 8, 8), dtype=torch.uint8)
    assert torch.equal(plain.augment(x, torch.Generator()), images.normalise(x))
    vectors = Bounded.around(torch.randn(3, 2))
    assert LocalPlan(augment=False).preprocessing(vectors) is vectors
