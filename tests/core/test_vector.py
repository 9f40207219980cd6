import pytest
import torch
from torch.func import grad, vmap

from fedadb.core.vector import Layout, Vector, clip, gradient


def vector(*values: float) -> Vector:
    """The numbers as a 2×… matrix "a" and a rest "b"."""
    flat = torch.tensor(values, dtype=torch.float32)
    return Vector(flat, Layout(("a", "b"), ((2, 1), (len(values) - 2,))))


def test_arithmetic_is_that_of_the_numbers() -> None:
    u, v = vector(1, 2, 3), vector(4, 5, 6)
    assert (u + v).flat.tolist() == [5, 7, 9]
    assert (u - v).flat.tolist() == [-3, -3, -3]
    assert (2 * u).flat.tolist() == (u * 2).flat.tolist() == [2, 4, 6]
    assert (u * v).flat.tolist() == [4, 10, 18]
    assert (v / 2).flat.tolist() == [2, 2.5, 3]
    assert (v / u).flat.tolist() == [4, 2.5, 2]
    assert (-u).flat.tolist() == [-1, -2, -3]
    assert (-u).abs().flat.tolist() == [1, 2, 3]
    assert (u @ v).item() == 32
    assert vector(3, 4, 0).norm().item() == 5
    assert u.zeros().flat.tolist() == [0, 0, 0]


def test_named_parts_are_views_with_their_shape() -> None:
    v = vector(1, 2, 3, 4)
    assert v["a"].shape == (2, 1)
    v["b"].mul_(10)
    assert v.flat.tolist() == [1, 2, 30, 40]
    assert {name: tuple(part.shape) for name, part in v.views().items()} == {"a": (2, 1), "b": (2,)}


def test_of_keeps_order_and_copies() -> None:
    a = torch.ones(2, 2)
    v = Vector.of({"z": a, "b": torch.zeros(1)})
    a.zero_()
    assert v.layout.names == ("z", "b")
    assert v.flat.tolist() == [1, 1, 1, 1, 0]


def test_map_works_part_by_part() -> None:
    v = vector(3, 4, 10)
    unit = v.map(lambda part: part / part.norm())
    torch.testing.assert_close(unit.flat, torch.tensor([0.6, 0.8, 1.0]))


def test_vectors_of_different_models_do_not_mix() -> None:
    with pytest.raises(ValueError, match="different models"):
        vector(1, 2, 3) + vector(1, 2, 3, 4)


def test_gradient_of_a_quadratic_is_the_point() -> None:
    w = vector(1, -2, 3)
    g = gradient(lambda v: 0.5 * (v @ v), w)
    assert g.flat.tolist() == [1, -2, 3]
    assert not w.flat.requires_grad


def test_torch_func_sees_through_a_vector() -> None:
    w = vector(1, -2, 3)
    g = grad(lambda v: 0.5 * (v @ v) + v["b"].sum())(w)
    assert isinstance(g, Vector)
    assert g.flat.tolist() == [1, -2, 4]

    stacked = Vector(torch.stack([w.flat, 2 * w.flat]), w.layout)
    norms = vmap(lambda v: v @ v)(stacked)
    assert norms.tolist() == [14, 56]


def test_adding_in_place_changes_this_vector_alone() -> None:
    u, v = vector(1, 2, 3), vector(4, 4, 4)
    u.add_(v, 0.5)
    assert u.flat.tolist() == [3, 4, 5]
    assert v.flat.tolist() == [4, 4, 4]
    with pytest.raises(ValueError, match="different models"):
        u.add_(vector(1, 2, 3, 4), 1.0)


def test_clipping_shortens_a_long_vector_and_leaves_a_short_one() -> None:
    v = vector(3, 4, 0)
    torch.testing.assert_close(clip(v, 1.0).flat, torch.tensor([0.6, 0.8, 0.0]))
    assert torch.equal(clip(v, 6.0).flat, v.flat)
    assert torch.equal(clip(v.zeros(), 1.0).flat, v.zeros().flat)


def test_the_first_parts_split_off_as_views() -> None:
    v = Vector.of({**vector(1, 2, 3).views(), "c": torch.tensor([[4.0, 5.0]])})
    first, rest = v.split(vector(1, 2, 3).layout)
    assert first.layout == vector(1, 2, 3).layout
    assert (first.flat.tolist(), rest["c"].tolist()) == ([1, 2, 3], [[4, 5]])
    first.flat.add_(1)
    assert v.flat.tolist() == [2, 3, 4, 4, 5]


def test_a_vector_of_other_parts_is_not_split() -> None:
    for layout in (vector(1, 2).layout, Layout(("a", "z"), ((2, 1), (1,)))):
        with pytest.raises(ValueError, match="does not begin with the parts of that layout"):
            vector(1, 2, 3).split(layout)
