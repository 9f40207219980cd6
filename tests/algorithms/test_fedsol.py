import pytest
import torch

from fedadb.algorithms.fedavg import FedAvg
from fedadb.algorithms.fedsol import FedSOL
from fedadb.core.algorithm import Context, Round
from fedadb.core.data import LocalPlan
from fedadb.core.stream import Stream
from fedadb.core.vector import Weights
from tests.algorithms.scalar import close, tensors, vector
from tests.conftest import toy_model, toy_shard

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


@pytest.mark.parametrize("adaptive", [True, False])
def test_the_first_step_of_a_round_is_fedavgs(adaptive: bool) -> None:
    f, data = toy_model(), toy_shard()
    w = f.weights()
    batch = next(LocalPlan(1, 8).batches(data, Stream(0)))
    ctx = Context(Weights(w), (), data.counts, Round(1, 3, 4, 40), LocalPlan(), torch.tensor(1))
    ours = FedSOL(adaptive=adaptive).gradient(f, w, batch, ctx)
    assert torch.equal(ours.flat, FedAvg().gradient(f, w, batch, ctx).flat)


def test_the_adaptive_one_is_no_longer_than_rho_and_nothing_at_the_start() -> None:
    drift = vector(*torch.randn(40).tolist())
    g = vector(*torch.randn(40).tolist())
    assert FedSOL(rho=0.9).perturbation(drift, g).norm() <= 0.9
    assert FedSOL().perturbation(0 * drift, g).flat.abs().max() == 0
