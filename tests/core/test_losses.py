import pytest
import torch
from torch.func import grad

from fedadb.core.losses import distil, drop_true

Z, TEACHER, Y = torch.tensor([[2.0, 1, 0]]), torch.tensor([[0.0, 1, 3]]), torch.tensor([0])


@pytest.mark.parametrize(
    ("tau", "value", "slope"), [(1, 0.828725, 0.611856), (2, 1.029613, 0.707036)]
)
def test_not_true_distillation(tau: float, value: float, slope: float) -> None:
    """With y = 0 the teacher's (1, 3) and the student's (1, 0) are left; KL by hand."""

    def loss(z: torch.Tensor) -> torch.Tensor:
        return distil(drop_true(z, Y), drop_true(TEACHER, Y), tau)

    assert loss(Z).item() == pytest.approx(value, abs=1e-6)
    expected = torch.tensor([[0, slope, -slope]])
    torch.testing.assert_close(grad(loss)(Z), expected, atol=1e-6, rtol=0)


def test_drop_true_drops_the_label_of_each_row() -> None:
    logits = torch.arange(12.0).view(3, 4)
    left = drop_true(logits, torch.tensor([0, 3, 1]))
    assert left.tolist() == [[1, 2, 3], [4, 5, 6], [8, 10, 11]]


def test_a_student_like_its_teacher_loses_nothing() -> None:
    assert distil(Z, Z + 5, 3.0).item() == pytest.approx(0, abs=1e-6)
