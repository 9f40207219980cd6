"""The mathematics of the analyses, where the answer is known."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fedadb.algorithms.fedadb import FedADB
from fedadb.analysis import pca, psnr, tsne
from fedadb.analysis.hessian import (
    Spectrum,
    deployed_weights,
    hessian_product,
    lanczos,
    mean_loss,
    power_iteration,
)
from fedadb.analysis.landscape import axis, loss_plane
from fedadb.analysis.membership import auc
from fedadb.core.data import Batch
from fedadb.core.model import Model
from fedadb.core.vector import Vector
from tests.conftest import toy_shard
from tests.test_every_algorithm import model

METHODS = (lanczos, power_iteration)


@pytest.mark.parametrize("method", METHODS)
def test_eigenvalues_of_a_known_quadratic(method: Callable[..., Spectrum]) -> None:
    """x'Ax/2 has the Hessian A; one of its largest eigenvalues is negative and keeps its sign."""
    values = np.array([5.0, -4.0, 3.0, 2.0, 1.0, 0.5, 0.1, 0.0, 0.0, 0.0])
    basis, _ = np.linalg.qr(np.random.default_rng(1).standard_normal((10, 10)))
    a = basis @ np.diag(values) @ basis.T
    found = method(lambda v: a @ v.reshape(-1), 10)
    assert found.values == pytest.approx(values[:5], rel=0.01)
    assert found.vectors.T @ found.vectors == pytest.approx(np.eye(5), abs=1e-3)
    assert found.anisotropy == pytest.approx(5, rel=0.01)


def toy() -> tuple[Model, Vector, list[Batch]]:
    f, data = model(FedADB()), toy_shard(40)
    x = data.transform.normalise(data.examples.x)
    batches = [Batch(x[:25], data.examples.y[:25]), Batch(x[25:], data.examples.y[25:])]
    return f, f.weights(), batches


def test_products_equal_those_with_the_full_hessian() -> None:
    """The reference is the Hessian that autograd computes, without the head that is unused."""
    f, w, batches = toy()
    deployed = deployed_weights(f, w)
    assert 0 < int((~deployed).sum()) == w["heads.L.weight"].numel() + w["heads.L.bias"].numel()

    def loss(part: torch.Tensor) -> torch.Tensor:
        flat = w.flat.clone()
        at = flat.masked_scatter(deployed, part)
        x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
        return F.cross_entropy(f(Vector(at, w.layout), x).logits, y)

    made = torch.autograd.functional.hessian(loss, w.flat[deployed])  # type: ignore[no-untyped-call]
    whole = made.numpy()
    product = hessian_product(f, w, batches)
    v = np.random.default_rng(0).standard_normal(len(whole))
    assert product(v) == pytest.approx(whole @ v, rel=1e-3, abs=1e-5)
    by_lanczos, by_power = (method(product, len(whole)) for method in METHODS)
    exact = np.linalg.eigvalsh(whole.astype(np.float64))
    assert by_lanczos.values == pytest.approx(exact[np.argsort(-np.abs(exact))][:5], rel=0.01)
    assert by_power.values[0] == pytest.approx(by_lanczos.values[0], rel=0.01)


def test_the_landscape_has_the_loss_at_its_centre_and_the_eigenvalue_as_curvature() -> None:
    f, w, batches = toy()
    top = lanczos(hessian_product(f, w, batches), int(deployed_weights(f, w).sum()))
    assert axis()[10] == 0
    assert (axis()[0], axis()[-1], len(axis())) == (-0.5, 0.5, 21)
    steps = axis(0.02, 3)
    losses = loss_plane(f, w, batches, top.vectors[:, :2], steps)
    assert losses[1, 1] == mean_loss(f, w, batches)
    curvature = (losses[2, 1] - 2 * losses[1, 1] + losses[0, 1]) / 0.02**2
    assert curvature == pytest.approx(top.values[0], rel=0.05)


def test_embeddings_are_deterministic() -> None:
    rng = np.random.default_rng(0)
    real, anchors = rng.standard_normal((60, 20)), rng.standard_normal((3, 20))
    for once, again in zip(tsne.embed(real, anchors), tsne.embed(real, anchors), strict=True):
        assert np.array_equal(once, again)
    labels = np.arange(60) % 3
    for once, again in zip(
        pca.three_components(real, labels, anchors, 3),
        pca.three_components(real, labels, anchors, 3),
        strict=True,
    ):
        assert np.array_equal(once, again)


def test_equal_vectors_have_pearson_correlation_one() -> None:
    centres = np.random.default_rng(0).standard_normal((4, 9))
    found = pca.align(centres, np.arange(4), centres)
    assert np.diag(found.pearson) == pytest.approx(1)
    assert found.diagonal == pytest.approx(1)
    assert found.nearest == 1
    assert found.off_diagonal < 0.9
    opposite = pca.align(-centres, np.arange(4), centres)
    assert opposite.diagonal == pytest.approx(-1)
    assert found.pearson == pytest.approx(np.corrcoef(centres))


def test_psnr_by_hand() -> None:
    black, white = np.zeros((1, 1, 4, 4)), np.ones((1, 1, 4, 4))
    assert psnr.psnr(psnr.mean_square(black, black + 0.1))[0, 0] == pytest.approx(20)
    assert psnr.psnr(psnr.mean_square(black, white))[0, 0] == 0
    assert math.isinf(psnr.psnr(psnr.mean_square(black, black))[0, 0])
    rng = np.random.default_rng(0)
    noise = psnr.mean_square(rng.random((1, 1, 200, 200)), rng.random((1, 1, 200, 200)))
    assert psnr.psnr(noise)[0, 0] == pytest.approx(7.78, abs=0.05)


def test_similarity_to_the_nearest_image() -> None:
    anchor = np.zeros((1, 4, 4))
    images = np.stack([anchor + 0.1, anchor + 1.0])
    found = psnr.similarity(anchor, images, anchor + 0.2, np.random.default_rng(0))
    assert found.nearest == pytest.approx(20)
    assert found.mean == pytest.approx(10)
    assert found.class_mean == pytest.approx(-20 * math.log10(0.55))
    assert found.real_nearest == pytest.approx(-20 * math.log10(0.9))
    assert found.noise == pytest.approx(20)


def test_auc() -> None:
    rng = np.random.default_rng(0)
    same = auc(rng.standard_normal(2000), rng.standard_normal(2000))
    assert same.value == pytest.approx(0.5, abs=0.03)
    assert same.low < 0.5 < same.high
    assert same.high - same.low == pytest.approx(0.036, abs=0.004)
    apart = auc(np.arange(10) + 100.0, np.arange(10) + 0.0)
    assert apart == (1, 1, 1)
    assert auc(np.array([1.0, 3.0]), np.array([2.0, 2.0])).value == 0.5


def test_power_iteration_that_does_not_converge_stays_orthonormal() -> None:
    a = np.diag([-5.0, 4.99, 4.95, 3, 2, 1, 0, 0])
    found = power_iteration(lambda v: a @ v.reshape(-1), 8, max_products=5)
    assert found.vectors.T @ found.vectors == pytest.approx(np.eye(5), abs=1e-6)
    assert np.abs(found.values).max() <= 5
