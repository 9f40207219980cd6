"""The curvature of the training loss at the deployed weights: its Hessian's largest eigenvalues.

Lanczos iteration (scipy's eigsh) computes them; power iteration checks the first one.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh
from torch import Tensor

from fedadb.analysis.inputs import Numbers, Options, Results, normalised_batches, training_sample
from fedadb.analysis.panels import side_by_side
from fedadb.core.data import Batch
from fedadb.core.errors import Fault
from fedadb.core.model import Model
from fedadb.core.vector import Vector
from fedadb.engine.evaluate import evaluate
from fedadb.experiment.stored import StoredRun

USUAL_PRODUCTS = 60  # Hessian products that both iterations usually take together

Product = Callable[[np.ndarray], np.ndarray]  # v ↦ Hv


class Spectrum(NamedTuple):
    """Eigenvalues that are largest in absolute value, and their eigenvectors."""

    values: np.ndarray  # λ₁, λ₂, … by absolute value, with their signs
    vectors: np.ndarray  # one column each, of length one

    @property
    def anisotropy(self) -> float:
        """λ₁ / λ₅, or λ₁ over the last one of fewer."""
        return float(self.values[0] / self.values[-1])


def require(run: StoredRun, options: Options) -> None:
    _ = run.w
    training_sample(run, options.images)


@cache  # the landscape uses the result again
def measure(run: StoredRun, options: Options) -> Numbers:
    """λ₁ to λ₅ on a sample of training images, and the accuracy on the same images."""
    f, w, train = run.f, run.w, run.require_data().train
    sample = training_sample(run, options.images)
    product = hessian_product(f, w, normalised_batches(run, train, sample))
    n = int(deployed_weights(f, w).sum())
    with options.progress("Hessian products", USUAL_PRODUCTS, "products") as advance:

        def counted(v: np.ndarray) -> np.ndarray:
            advance(1)
            return product(v)

        top = lanczos(counted, n)
        check = power_iteration(counted, n, k=1)
    batch_size = run.experiment.local.batch_size
    scores = evaluate(f, w, train.rows(sample), run.spec.transform, batch_size)
    return {
        "eigenvalues": top.values.tolist(),
        "lambda1": float(top.values[0]),
        "anisotropy": top.anisotropy,
        "lambda1_by_power_iteration": float(check.values[0]),
        "training_accuracy": scores.accuracy,
        "images": len(sample),
        "vectors": top.vectors[:, :2],
    }


def draw(results: Results, classes: Sequence[str]) -> Figure:
    figure, (axes,) = side_by_side(1)
    for title, numbers in results.items():
        label = f"{title}: λ₁ {numbers['lambda1']:.3g}, λ₁/λ₅ {numbers['anisotropy']:.2f}"
        positions = range(1, len(numbers["eigenvalues"]) + 1)
        axes.plot(positions, numbers["eigenvalues"], "o-", label=label)
        axes.set_xticks(positions)
    axes.set(xlabel="eigenvalue", ylabel="curvature")
    axes.axhline(0, color="grey", linewidth=0.5)
    axes.legend(frameon=False)
    return figure


def deployed_weights(f: Model, w: Vector) -> Tensor:
    """A mask of the weights that the deployed model uses; other heads serve training only."""
    parts = [
        torch.full((size,), not name.startswith("heads.") or name.startswith(f"heads.{f.head}."))
        for name, size in zip(w.layout.names, w.layout.sizes, strict=True)
    ]
    return torch.cat(parts)


def mean_loss(f: Model, w: Vector, batches: Sequence[Batch]) -> float:
    """The mean cross entropy over all rows."""
    with torch.no_grad():
        losses = [float(F.cross_entropy(f(w, x).logits, y, reduction="sum")) for x, y in batches]
    return sum(losses) / sum(len(y) for _, y in batches)


def hessian_product(f: Model, w: Vector, batches: Sequence[Batch]) -> Product:
    """The map v ↦ Hv for the Hessian H of the mean cross entropy in the deployed weights."""
    deployed = deployed_weights(f, w).to(w.flat.device)
    n = sum(len(y) for _, y in batches)

    def product(v: np.ndarray) -> np.ndarray:
        direction = torch.zeros_like(w.flat)
        direction[deployed] = torch.as_tensor(v, dtype=w.flat.dtype).reshape(-1).to(w.flat.device)
        total = torch.zeros_like(w.flat)
        for x, y in batches:  # one graph in memory at a time
            at = w.flat.detach().requires_grad_()
            loss = F.cross_entropy(f(Vector(at, w.layout), x).logits, y, reduction="sum")
            (g,) = torch.autograd.grad(loss, at, create_graph=True)
            total += torch.autograd.grad(g @ direction, at)[0]
        return (total[deployed] / n).double().cpu().numpy()

    return product


def lanczos(product: Product, n: int, k: int = 5, seed: int = 0) -> Spectrum:
    """The k eigenvalues of an n × n matrix that are largest in absolute value."""
    k = min(k, n - 1)
    start = np.random.default_rng(seed).standard_normal(n)
    operator = LinearOperator((n, n), matvec=product, dtype=np.float64)
    try:
        values, vectors = eigsh(operator, k, which="LM", v0=start, tol=1e-4, maxiter=100)
    except ArpackError as error:
        raise Fault(f"the Hessian's eigenvalues did not converge: {error}") from error
    order = np.argsort(-np.abs(values))
    return Spectrum(values[order], vectors[:, order])


def power_iteration(
    product: Product,
    n: int,
    k: int = 5,
    seed: int = 0,
    tolerance: float = 1e-4,
    max_products: int = 200,
) -> Spectrum:
    """The same by repeated products; each vector is kept orthogonal to those before it.

    `max_products` is the limit per eigenvalue.
    """
    rng = np.random.default_rng(seed)
    values, vectors = [], np.zeros((n, 0))
    for _ in range(k):
        v, value = rng.standard_normal(n), np.inf
        for _ in range(max_products):
            v -= vectors @ (vectors.T @ v)
            v /= np.linalg.norm(v)
            image = product(v)
            last, value = value, float(v @ image)  # the Rayleigh quotient keeps the sign
            if abs(value - last) <= tolerance * abs(value):
                break
            v = image
        v = v - vectors @ (vectors.T @ v)
        v /= np.linalg.norm(v) or 1.0
        values.append(value)
        vectors = np.column_stack([vectors, v])
    return Spectrum(np.array(values), vectors)
