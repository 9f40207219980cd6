import pytest
import torch

from fedadb.algorithms.fedsol import FedSOL
from tests.algorithms.scalar import close, tensors, vector

W = tensors(w=[[1, 2], [3, 4]])
SENT = tensors(w=[[1, 1], [0, 4]])
G = tensors(w=[[1, 0], [2, 2]])


def test_the_adaptive_perturbation_by_hand() -> None:
    """|w − w_t| = [[0, 1], [3, 0]], columns to length 1: [[0, 1], [1, 0]]; ‖g‖ = 3."""
    close(FedSOL().perturbation(W - SENT, G).flat, 0, 0, 2 / 3, 0)


def test_the_fixed_perturbation_has_length_rho_unless_it_is_noise() -> None:
    fixed = FedSOL(rho=0.7, adaptive=False)
    assert fixed.perturbation(W - SENT, G).norm().item() == pytest.approx(0.7)
    assert fixed.perturbation(0 * W, 1e-9 * G).norm().item() == 0


def test_the_adaptive_one_is_no_longer_than_rho_and_nothing_at_the_start() -> None:
    drift = vector(*torch.randn(40).tolist())
    g = vector(*torch.randn(40).tolist())
    assert FedSOL(rho=0.9).perturbation(drift, g).norm() <= 0.9
    assert FedSOL().perturbation(0 * drift, g).flat.abs().max() == 0
