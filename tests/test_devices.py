"""Every hook and the evaluation work on a device other than the CPU.

torch's meta device computes shapes and no values. An operation that mixes a tensor of it with one
that was left on the CPU raises, so these tests find on a machine without a GPU what a GPU would.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental import _config
from torch.utils._pytree import tree_map

from fedadb.algorithms import ALGORITHMS
from fedadb.core.algorithm import Algorithm, Context, Round
from fedadb.core.data import LocalPlan
from fedadb.core.model import Model
from fedadb.core.packing import pack
from fedadb.core.replies import Reply
from fedadb.core.stream import Stream
from fedadb.core.transform import Transform
from fedadb.engine.evaluate import TestSet
from tests.conftest import toy_shard
from tests.test_every_algorithm import CLIENTS, model, quick, shards

META = torch.device("meta")


@pytest.fixture(autouse=True)
def _values_of_meta_tensors(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A meta tensor has no value; where Python asks for one, it gets a plausible one."""

    def given(value: Any, original: Any) -> Any:
        return lambda self, *args: value(self) if self.is_meta else original(self, *args)

    for name, value in (
        ("__bool__", lambda _: True),
        ("__float__", lambda _: 1.0),
        ("__int__", lambda _: 1),
        ("tolist", lambda t: [0] * t.numel()),
    ):
        monkeypatch.setattr(Tensor, name, given(value, getattr(Tensor, name)))
    # Indexing with a mask: the shape depends on values, so all are taken to be true.
    with _config.patch(meta_nonzero_assume_all_nonzero=True):  # type: ignore[attr-defined]
        yield


def to_meta(tree: Any) -> Any:
    return tree_map(lambda leaf: leaf.to(META) if isinstance(leaf, Tensor) else leaf, tree)


def meta_model(algorithm: Algorithm[Any, Any, Any, Any]) -> Model:
    f = model(algorithm)
    f.module.to(META)
    return f


def require_meta(tree: Any) -> None:
    for name, tensor in pack(tree).items():
        assert tensor.is_meta, name


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_hooks_of_every_algorithm_stay_on_their_device(name: str) -> None:
    algorithm: Any = quick(name)
    cpu, f = model(algorithm), meta_model(algorithm)
    data, round = shards()[0], Round(2, 5, CLIENTS, 60)
    # Batches are drawn on the CPU, where their random numbers are; then everything moves.
    on_cpu = algorithm.broadcast(algorithm.init(cpu.weights()), cpu, Stream(0))
    plan, steps = LocalPlan(1, 8), torch.tensor(2)
    memory = algorithm.memory(on_cpu.w)
    here: Context[Any, Any] = Context(on_cpu, memory, data.counts, round, plan, steps)
    batch = next(iter(algorithm.batches(cpu, data, here, Stream(0))))
    s = algorithm.init(f.weights())
    sent = algorithm.broadcast(s, f, Stream(0))
    require_meta(sent)
    memory = algorithm.memory(sent.w)
    ctx: Context[Any, Any] = Context(sent, memory, to_meta(data.counts), round, plan, steps)
    w = 1.1 * algorithm.start(ctx)
    assert w.flat.is_meta
    with torch.no_grad():
        algorithm.measure(f, to_meta(batch), ctx)
    assert algorithm.loss(f, w, to_meta(batch), ctx).is_meta
    assert algorithm.gradient(f, w, to_meta(batch), ctx).flat.is_meta
    there = replace(data, examples=data.examples.to(META), rows=data.rows.to(META))
    uploads = [algorithm.upload(f, v, there, ctx) for v in (w, 2 * w)]
    for upload in uploads:
        require_meta(upload)
    require_meta(algorithm.remember(w, uploads[0], ctx))
    own = algorithm.personal(f, w, to_meta(data.batch(torch.arange(4), torch.Generator()).x))
    assert own is None or own.is_meta
    replies = [Reply(upload, torch.tensor(n)) for upload, n in zip(uploads, (14, 9), strict=True)]
    after = algorithm.aggregate(s, replies, round)
    require_meta(after)
    assert algorithm.deployed(after).flat.is_meta


@pytest.mark.parametrize("name", ALGORITHMS)
def test_evaluation_stays_on_its_device(name: str) -> None:
    algorithm: Any = ALGORITHMS[name]()
    f, test = meta_model(algorithm), toy_shard(20)
    domain = torch.arange(20, device=META) % 2
    test_set = TestSet(f, test.examples.to(META), test.transform, 8, domain)
    object.__setattr__(test_set, "counts", [4, 3, 3, 3, 4, 3])  # counted on the CPU
    scores = test_set.evaluate(f.weights())
    assert len(scores.class_accuracy) == 3


def test_transforms_stay_on_their_device() -> None:
    data = toy_shard(12)
    rough = Transform((0.5,), (0.5,), zoom=0.7, pad=2, flip=True, cutout=2)
    images = data.examples.x.to(META)
    assert rough.augment(images, torch.Generator().manual_seed(0)).is_meta
    assert rough.normalise(images).is_meta
