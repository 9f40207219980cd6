import pytest
import torch
import torch.nn.functional as F
from torch.func import grad

from fedadb.core.losses import distil, drop_true

Z, TEACHER, Y = torch.tensor([[2.0, 1, 0]]), torch.tensor([[0.0, 1, 3]]), torch.tensor([0])


def not_true(z: torch.Tensor, teacher: torch.Tensor = TEACHER, tau: float = 1.0) -> torch.Tensor:
    return distil(drop_true(z, Y), drop_true(teacher, Y), tau)


def test_the_example_has_the_published_risk() -> None:
    assert F.cross_entropy(Z, Y).item() == pytest.approx(0.407606, abs=1e-6)


def test_the_gradient_is_zero_on_the_label_and_sums_to_zero() -> None:
    for tau in (1.0, 3.0):
        g = grad(lambda z, tau=tau: not_true(z, tau=tau))(Z)[0]
        s = (Z[0, 1:] / tau).softmax(0)
        q = (TEACHER[0, 1:] / tau).softmax(0)
        assert g[0] == 0
        torch.testing.assert_close(g[1:], tau * (s - q), atol=1e-6, rtol=0)
        assert g.sum().abs() < 1e-6


def test_it_ignores_constants_and_the_labels_logit() -> None:
    value = not_true(Z).item()
    assert not_true(Z + 5).item() == pytest.approx(value, abs=1e-6)
    for changed in (Z, TEACHER):
        other = changed.clone()
        other[0, 0] += 7
        moved = not_true(other) if changed is Z else not_true(Z, other)
        assert moved.item() == pytest.approx(value, abs=1e-6)


def test_two_classes_leave_nothing_to_distil() -> None:
    assert distil(drop_true(Z[:, :2], Y), drop_true(TEACHER[:, :2], Y)).item() == 0


def test_a_round_starts_without_it() -> None:
    assert not_true(Z, Z).item() == 0
    assert grad(lambda z: not_true(z, Z))(Z).abs().max() < 1e-7
