"""Other readings of the paper that are run as code of one's own: what each of them changes."""

import itertools

import torch
from torch import nn

from experiments.variants import ColourLeNet, NormalisedLeNet, SingleAnchors, UnitAnchors
from fedadb.algorithms.fedadb import FedADB
from fedadb.core.stream import Stream
from fedadb.core.vector import Weights
from fedadb.models.lenet import LeNet
from tests.algorithms.test_fedadb import context, model, shard, trained


def test_each_anchor_is_once_in_a_batch() -> None:
    f, data = model(), shard()
    sent = FedADB().broadcast(Weights(f.weights()), f, Stream(0))
    ctx = context(sent, data)
    both = zip(
        FedADB().batches(f, data, ctx, Stream(7)),
        SingleAnchors().batches(f, data, ctx, Stream(7)),
        strict=True,
    )
    repeated = 0
    for usual, once in both:
        is_anchor = usual.balanced.anchor
        assert torch.equal(usual.balanced.x, once.balanced.x)  # the same rows and anchors
        torch.testing.assert_close(once.balanced.weight.sum(), torch.tensor(1.0))
        assert once.balanced.weight.min() == once.balanced.weight.max()
        repeated += int((usual.balanced.weight[is_anchor] > usual.balanced.weight.min()).sum())
    assert repeated > 0


def test_anchors_end_between_zero_and_one() -> None:
    f = model()
    w = trained(f)
    usual, unit = (
        one.broadcast(Weights(w), f, Stream(0)).anchors.x for one in (FedADB(), UnitAnchors())
    )
    assert usual.min() < 0
    assert 0 <= unit.min() < unit.max() <= 1


def test_lenet_has_batch_statistics_after_each_convolution() -> None:
    layers = list(NormalisedLeNet().body((1, 28, 28)).children())
    followed = [type(b) for a, b in itertools.pairwise(layers) if isinstance(a, nn.Conv2d)]
    assert followed == [nn.BatchNorm2d, nn.BatchNorm2d]
    x = torch.randn(4, 1, 28, 28)
    body = nn.Sequential(*layers)
    assert not torch.equal(body(x)[:2], body(x[:2]))  # a row depends on the others


def test_three_equal_channels_are_one_with_the_sum_of_the_kernels() -> None:
    _, *layers = ColourLeNet().body((1, 28, 28)).children()
    state = nn.Sequential(*layers).state_dict()
    state["0.weight"] = state["0.weight"].sum(1, keepdim=True)
    grey = LeNet().body((1, 28, 28))
    grey.load_state_dict(state)
    x = torch.randn(4, 1, 28, 28)
    torch.testing.assert_close(nn.Sequential(*layers)(x.expand(-1, 3, -1, -1)), grey(x))
    assert ColourLeNet().body((1, 28, 28))(x).shape == (4, 84)
