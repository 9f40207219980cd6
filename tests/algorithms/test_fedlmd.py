import math

import pytest
import torch
from torch.func import grad

from fedadb.algorithms.fedlmd import majority, masked_distil
from fedadb.core.losses import distil, drop_true

Z, TEACHER = torch.tensor([[2.0, 1, 0, -1]]), torch.tensor([[0.0, 1, 3, 2]])
Y = torch.tensor([0])
MAJOR = torch.tensor([True, True, False, False])


def test_majority_is_strictly_above_the_mean_over_all_classes() -> None:
    assert majority(torch.tensor([6, 3, 3, 0])).tolist() == [True, False, False, False]
    assert majority(torch.tensor([5, 5, 0, 0])).tolist() == [True, True, False, False]
    assert not majority(torch.tensor([3, 3, 3])).any()


def test_by_hand() -> None:
    """Q = softmax(3, 2) on classes 2, 3; s = softmax(1, 0, −1) on classes 1, 2, 3."""
    assert masked_distil(Z, TEACHER, Y, MAJOR, 1.0).item() == pytest.approx(1.094344, abs=1e-5)
    g = grad(lambda z: masked_distil(z, TEACHER, Y, MAJOR, 1.0))(Z)[0]
    expected = torch.tensor([0, 0.665241, -0.486330, -0.178911])
    torch.testing.assert_close(g, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("tau", [1.0, 2.5])
@pytest.mark.parametrize("major", [[False] * 4, [True, False, False, False]])
def test_with_nothing_else_hidden_it_is_not_true_distillation(
    tau: float, major: list[bool]
) -> None:
    found = masked_distil(Z, TEACHER, Y, torch.tensor(major), tau)
    expected = distil(drop_true(Z, Y), drop_true(TEACHER, Y), tau)
    torch.testing.assert_close(found, expected)


def test_one_label_left_is_its_log_likelihood() -> None:
    """Only class 2 is shown: −log s_2 with s over classes 1, 2, 3."""
    major = torch.tensor([True, True, False, True])
    z = torch.tensor([[9.0, 2.0, 0.0, 1.0]])
    log_sum = math.log(math.exp(2) + 1 + math.exp(1))
    assert log_sum == pytest.approx(2.407606, abs=1e-6)
    assert masked_distil(z, TEACHER, Y, major, 1.0).item() == pytest.approx(log_sum, abs=1e-6)


def test_a_round_does_not_start_without_it() -> None:
    s = Z[0, 1:].softmax(0)
    expected = -math.log(float(s[1:].sum()))
    assert masked_distil(Z, Z, Y, MAJOR, 1.0).item() == pytest.approx(expected, abs=1e-6)


def test_a_teacher_with_nothing_to_say_says_nothing() -> None:
    """The label is the only minority class; beside it, a row that does have a teacher."""
    major = torch.tensor([False, True, True, True])
    y = torch.tensor([0, 1])
    z, teacher = Z.repeat(2, 1), TEACHER.repeat(2, 1)
    both = masked_distil(z, teacher, y, major, 1.0)
    second = masked_distil(z[1:], teacher[1:], y[1:], major, 1.0)
    assert both.item() == pytest.approx(second.item() / 2, abs=1e-6)
    assert grad(lambda v: masked_distil(v, teacher, y, major, 1.0))(z).isfinite().all()
