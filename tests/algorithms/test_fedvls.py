import math
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad, vmap

from fedadb.algorithms.fedavg import FedAvg
from fedadb.algorithms.fedvls import EPS, FedVLS, suppression, vacant_distil
from fedadb.core.algorithm import Context, Round
from fedadb.core.data import Batch, LocalPlan
from fedadb.core.vector import Vector, Weights
from tests.algorithms.scalar import close, linear_model, weights_for
from tests.conftest import toy_model, toy_shard

COUNTS = torch.tensor([6, 2, 0, 0])
PI = COUNTS / 8
Z = torch.tensor([[2.0, 1, 0, -1], [0, 1, 1, 2]])
Z_GLOBAL = torch.tensor([[1.0, 0, 2, 0], [0, 0, 0, 1]])
Y = torch.tensor([0, 1])


def context(sent: Vector, counts: Tensor) -> Context[Weights]:
    return Context(Weights(sent), (), counts, Round(1, 9, 2, 20), LocalPlan(), torch.tensor(1))


def test_the_three_terms_by_hand() -> None:
    def balanced(z: Tensor) -> Tensor:
        return F.cross_entropy(z + (PI + EPS).log(), Y)

    def distilled(z: Tensor) -> Tensor:
        return vacant_distil(z, Z_GLOBAL, COUNTS == 0)

    def suppressed(z: Tensor) -> Tensor:
        return suppression(z, Y, PI)

    close(balanced(Z), 0.429670)
    close(grad(balanced)(Z), -0.054616, 0.054616, 0, 0, 0.262317, -0.262317, 0, 0)
    close(suppressed(Z), -0.149070)
    close(grad(suppressed)(Z), 0, 0.182765, 0, 0, 0.1875, 0, 0, 0)
    close(distilled(Z), 0.033565)
    close(grad(distilled)(Z), 0, 0, -0.074869, 0.074869, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("lam", "beta", "expected"),
    [(0.1, 0.005, 0.432281), (0, 0, 0.429670), (1, 0, 0.463235), (0, 1, 0.280600)],
)
def test_the_loss_is_their_sum(lam: float, beta: float, expected: float) -> None:
    batch, ctx = Batch(torch.eye(2), Y), context(weights_for(Z_GLOBAL), COUNTS)
    loss = FedVLS(lam=lam, beta=beta).loss(linear_model(2, 4), weights_for(Z), batch, ctx)
    close(loss, expected)


def test_a_vacant_class_is_all_but_excluded() -> None:
    assert math.log(EPS) == pytest.approx(-20.723, abs=1e-3)
    close((PI + EPS).log()[2:], -20.723266, -20.723266)


@pytest.mark.parametrize("vacant", [[False] * 4, [False, False, True, False]])
def test_distillation_needs_two_vacant_classes(vacant: list[bool]) -> None:
    def distilled(z: Tensor) -> Tensor:
        return vacant_distil(z, Z_GLOBAL, torch.tensor(vacant))

    assert distilled(Z) == 0
    assert (grad(distilled)(Z) == 0).all()


def test_all_classes_vacant_but_one() -> None:
    """With label 0 the student and the teacher are compared on classes 1, 2 and 3."""
    vacant = torch.tensor([False, True, True, True])
    q, s = Z_GLOBAL[:, 1:].softmax(1), Z[:, 1:].softmax(1)
    expected = (q * (q / s).log()).sum() / 2
    torch.testing.assert_close(vacant_distil(Z, Z_GLOBAL, vacant), expected)


def test_a_round_starts_without_distillation() -> None:
    vacant = COUNTS == 0
    assert vacant_distil(Z, Z, vacant) == 0
    assert (grad(lambda z: vacant_distil(z, Z, vacant))(Z) == 0).all()


def test_the_suppression_of_a_single_row_leaves_its_label_out() -> None:
    """Class 0 contributes log e⁰; class 1: 1/4 (1 − log 1/4 + log 1/4), and log 1/C = log 1/4."""
    close(suppression(Z[:1], Y[:1], PI), 0.25)
    assert grad(lambda z: suppression(z, Y[:1], PI))(Z[:1])[0, 0] == 0


def test_clients_of_any_classes_have_finite_losses_and_gradients_side_by_side() -> None:
    """One class, two, all: stacked under vmap, and equal to each alone."""
    f, data = toy_model(), toy_shard(9)
    sent, x = f.weights(), data.transform.normalise(data.examples.x)
    counts = torch.tensor([[9, 0, 0], [5, 4, 0], [3, 3, 3]])
    labels = torch.tensor([[0] * 9, [0, 1] * 4 + [0], [0, 1, 2] * 3])

    def direction(n: Tensor, y: Tensor) -> Tensor:
        algorithm = FedVLS(lam=0.7, beta=0.3)
        return algorithm.gradient(f, 1.3 * sent, Batch(x, y), context(sent, n)).flat

    stacked = vmap(direction)(counts, labels)
    assert stacked.isfinite().all()
    for one, n, y in zip(stacked, counts, labels, strict=True):
        torch.testing.assert_close(one, direction(n, y), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(("lam", "passes"), [(0.1, 2), (0.0, 1)])
def test_the_global_model_predicts_only_if_it_teaches(lam: float, passes: int) -> None:
    f, seen = linear_model(2, 4), []

    def counted(w: Vector, x: Tensor) -> Any:
        seen.append(w)
        return f(w, x)

    batch, ctx = Batch(torch.eye(2), Y), context(weights_for(Z_GLOBAL), COUNTS)
    FedVLS(lam=lam).loss(cast(Any, counted), weights_for(Z), batch, ctx)
    assert len(seen) == passes


def test_balanced_clients_without_the_two_terms_train_as_with_fedavg() -> None:
    f, data = toy_model(), toy_shard(9)
    batch = Batch(data.transform.normalise(data.examples.x), data.examples.y)
    ctx, w = context(f.weights(), torch.tensor([3, 3, 3])), 1.3 * f.weights()
    ours = FedVLS(lam=0, beta=0).gradient(f, w, batch, ctx).flat
    torch.testing.assert_close(ours, FedAvg().gradient(f, w, batch, ctx).flat)
    skewed = ctx._replace(counts=torch.tensor([5, 3, 1]))
    other = FedVLS(lam=0, beta=0).gradient(f, w, batch, skewed).flat
    assert (ours - other).abs().max() > 0.01
