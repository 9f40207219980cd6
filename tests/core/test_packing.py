from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from fedadb.core.errors import Fault
from fedadb.core.packing import pack, unpack
from fedadb.core.vector import Layout, Vector

LAYOUT = Layout(("body.weight", "a"), ((2, 2), (3,)))


class Inner(NamedTuple):
    x: Tensor
    y: Tensor


class Outer(NamedTuple):
    w: Vector
    anchors: Inner
    tau: Tensor
    nothing: tuple[()]


TREE = Outer(
    Vector(torch.arange(7.0), LAYOUT),
    Inner(torch.ones(2, 3), torch.tensor([4, 5])),
    torch.tensor(0.5),
    (),
)


def test_names_are_paths() -> None:
    assert list(pack(TREE)) == ["w/body.weight", "w/a", "anchors/x", "anchors/y", "tau"]
    assert list(pack(TREE.w, under="server")) == ["server/body.weight", "server/a"]
    assert pack(()) == {}


def test_unpacking_undoes_packing_in_any_order() -> None:
    tensors = dict(sorted(pack(TREE).items(), reverse=True))
    back = unpack(Outer, tensors, LAYOUT)
    assert back.w.layout == LAYOUT
    assert torch.equal(back.w.flat, TREE.w.flat)
    assert torch.equal(back.anchors.y, TREE.anchors.y)
    assert back.anchors.y.dtype == torch.int64
    assert back.tau.item() == 0.5
    assert back.nothing == ()


def test_a_bare_vector_and_nothing_at_all_unpack_too() -> None:
    assert torch.equal(unpack(Vector, pack(TREE.w), LAYOUT).flat, TREE.w.flat)
    assert unpack(tuple, {}, LAYOUT) == ()


def test_what_does_not_fit_is_named() -> None:
    tensors = pack(TREE)
    with pytest.raises(Fault, match="w/a is missing"):
        unpack(Outer, {k: v for k, v in tensors.items() if k != "w/a"}, LAYOUT)
    with pytest.raises(Fault, match=r"w/a has shape \(2,\); the model has \(3,\)"):
        unpack(Outer, tensors | {"w/a": torch.ones(2)}, LAYOUT)
    with pytest.raises(Fault, match="no field for stranger"):
        unpack(Outer, tensors | {"stranger": torch.ones(2)}, LAYOUT)
    with pytest.raises(TypeError, match="not a Vector"):
        pack({"a": 1})
