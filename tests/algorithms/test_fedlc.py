"""FedLC's calibrated cross entropy, with numbers worked out by hand."""

import pytest
import torch
import torch.nn.functional as F

from fedadb.algorithms.fedlc import FedLC
from tests.algorithms.logits import loss_and_gradient
from tests.algorithms.scalar import close

Z = [2.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("tau", "loss", "gradient"),
    [
        (1.0, 1.501809, (0.727576, -0.777273, 0.049697)),
        (0.1, 1.415522, (0.672237, -0.757201, 0.084964)),
        (0.0, 1.407606, (0.665241, -0.755272, 0.090031)),  # softmax(2, 1, 0) − (0, 1, 0)
    ],
)
@pytest.mark.parametrize("missing", ["exclude", "one"])
def test_by_hand(tau: float, loss: float, gradient: tuple[float, ...], missing: str) -> None:
    algorithm = FedLC(tau=tau, missing=missing)  # type: ignore[arg-type]
    value, g = loss_and_gradient(algorithm, Z, 1, [100, 16, 1])
    close(value, loss)
    close(g, *gradient)


def test_margins_are_larger_for_rarer_classes() -> None:
    close(FedLC().margins(torch.tensor([100, 16, 1])), 0.316228, 0.5, 1)


def test_a_class_that_the_client_lacks_leaves_the_softmax() -> None:
    value, g = loss_and_gradient(FedLC(tau=1), Z, 1, [100, 16, 0])
    close(value, 1.450835)
    close(g, 0.765625, -0.765625, 0)
    assert g[2] == 0


def test_or_counts_one_row() -> None:
    algorithm = FedLC(tau=1, missing="one")
    absent, present = (loss_and_gradient(algorithm, Z, 1, [100, 16, n]) for n in (0, 1))
    assert torch.equal(absent[0], present[0])
    assert torch.equal(absent[1], present[1])
    assert absent[1][2] > 0.01


def test_the_true_class_stays_in_the_denominator() -> None:
    """Without it, as the paper prints the loss: 1.249846, and −1 for the label."""
    value, g = loss_and_gradient(FedLC(tau=1), Z, 1, [100, 16, 1])
    assert value > 1.4
    assert g[1] > -0.8


def test_equal_counts_are_plain_cross_entropy() -> None:
    plain = F.cross_entropy(torch.tensor([Z]), torch.tensor([1]))
    value, _ = loss_and_gradient(FedLC(tau=1), Z, 1, [7, 7, 7])
    close(value, plain.item())


def test_a_client_with_one_class_has_nothing_to_learn() -> None:
    value, g = loss_and_gradient(FedLC(), Z, 1, [0, 12, 0])
    assert value == 0
    assert torch.equal(g, torch.zeros(3))


def test_no_margin_is_fedavg_but_a_small_one_is_not() -> None:
    """0 · ∞ is not a number, and the limit of a small τ has no missing classes."""
    plain, _ = loss_and_gradient(FedLC(tau=0), Z, 1, [100, 16, 0])
    close(plain, 1.407606)
    small, _ = loss_and_gradient(FedLC(tau=1e-6), Z, 1, [100, 16, 0])
    close(small, 1.313262)  # log(1 + e)
