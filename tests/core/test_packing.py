from typing import Any, Generic, NamedTuple

import pytest
import torch
from torch import Tensor
from typing_extensions import TypeVar

from fedadb.core.errors import Fault
from fedadb.core.packing import kind_of, pack, shapes, size, unpack
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


K = TypeVar("K")
M = TypeVar("M")


class Kept(NamedTuple, Generic[K, M]):
    total: Tensor
    second: M
    first: K


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


# the kind of a tree


@pytest.mark.parametrize(
    ("tree", "kind"),
    [
        (TREE, Outer),
        (TREE.w, Vector),
        (TREE.tau, Tensor),
        ((), tuple[()]),
        ((TREE.anchors, (), (TREE.w,)), tuple[Inner, tuple[()], tuple[Vector]]),
        (Kept(TREE.tau, (), TREE), Kept[Outer, tuple[()]]),
        (Kept(TREE.tau, (TREE.anchors, TREE.tau), ()), Kept[tuple[()], tuple[Inner, Tensor]]),
    ],
)
def test_a_tree_is_rebuilt_from_its_kind(tree: Any, kind: Any) -> None:
    assert kind_of(tree) == kind
    back = unpack(kind_of(tree), pack(tree), LAYOUT)
    assert kind_of(back) == kind
    before, after = pack(tree), pack(back)
    assert list(after) == list(before)
    assert all(torch.equal(tensor, before[path]) for path, tensor in after.items())


def test_positions_in_a_tuple_are_part_of_the_path() -> None:
    tree = (TREE.anchors, (), (TREE.tau, TREE.w))
    assert list(pack(tree, under="filters")) == [
        "filters/0/x",
        "filters/0/y",
        "filters/2/0",
        "filters/2/1/body.weight",
        "filters/2/1/a",
    ]


def test_a_tuple_that_does_not_fit_is_named() -> None:
    kind: Any = tuple[Tensor, Tensor]
    tensors = pack((torch.ones(2), torch.ones(3)))
    with pytest.raises(Fault, match="1 is missing"):
        unpack(kind, {"0": tensors["0"]}, LAYOUT)
    with pytest.raises(Fault, match="has no field for 2"):
        unpack(kind, {**tensors, "2": torch.ones(1)}, LAYOUT)


def test_shapes_are_by_path() -> None:
    assert shapes(TREE) == {
        "w/body.weight": (2, 2),
        "w/a": (3,),
        "anchors/x": (2, 3),
        "anchors/y": (2,),
        "tau": (),
    }
    assert shapes(()) == {}


def test_the_size_is_that_of_all_tensors() -> None:
    # 7 + 6 + 1 numbers of 4 bytes, 2 of 8.
    assert size(TREE) == 4 * (7 + 6 + 1) + 8 * 2
    assert size(()) == 0
