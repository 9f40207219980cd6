"""The curvature of the training loss at the deployed weights: its largest eigenvalues.

Lanczos (scipy's eigsh) finds them; power iteration with deflation is there to check it by.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh
from torch import Tensor

from fedadb.core.data import Batch
from fedadb.core.errors import Fault
from fedadb.core.model import Model
from fedadb.core.vector import Vector

Product = Callable[[np.ndarray], np.ndarray]  # v ↦ Hv


class Spectrum(NamedTuple):
    values: np.ndarray  # λ₁, λ₂, …, by size, with their signs
    vectors: np.ndarray  # a column each, of length one

    @property
    def anisotropy(self) -> float:
        """λ₁ / λ₅, or whichever is the last."""
        return float(self.values[0] / self.values[-1])


def used(f: Model, w: Vector) -> Tensor:
    """Which weights the deployed model has; other heads are there for training alone."""
    parts = [
        torch.full((size,), not name.startswith("heads.") or name.startswith(f"heads.{f.head}."))
        for name, size in zip(w.layout.names, w.layout.sizes, strict=True)
    ]
    return torch.cat(parts)


def mean_loss(f: Model, w: Vector, batches: Sequence[Batch]) -> float:
    with torch.no_grad():
        losses = [float(F.cross_entropy(f(w, x).logits, y, reduction="sum")) for x, y in batches]
    return sum(losses) / sum(len(y) for _, y in batches)


def hessian(f: Model, w: Vector, batches: Sequence[Batch]) -> Product:
    """The product with the Hessian of the mean cross entropy, one batch in memory at a time."""
    free = used(f, w).to(w.flat.device)
    n = sum(len(y) for _, y in batches)

    def product(v: np.ndarray) -> np.ndarray:
        direction = torch.zeros_like(w.flat)
        direction[free] = torch.as_tensor(v, dtype=w.flat.dtype).reshape(-1).to(w.flat.device)
        total = torch.zeros_like(w.flat)
        for x, y in batches:
            at = w.flat.detach().requires_grad_()
            loss = F.cross_entropy(f(Vector(at, w.layout), x).logits, y, reduction="sum")
            (g,) = torch.autograd.grad(loss, at, create_graph=True)
            total += torch.autograd.grad(g @ direction, at)[0]
        return (total[free] / n).double().cpu().numpy()

    return product


def lanczos(product: Product, n: int, k: int = 5, seed: int = 0) -> Spectrum:
    """The k eigenvalues that are largest in size."""
    k = min(k, n - 1)
    start = np.random.default_rng(seed).standard_normal(n)
    operator = LinearOperator((n, n), matvec=product, dtype=np.float64)
    try:
        values, vectors = eigsh(operator, k, which="LM", v0=start, tol=1e-4, maxiter=100)
    except ArpackError as error:
        raise Fault(f"the eigenvalues did not converge: {error}") from error
    order = np.argsort(-np.abs(values))
    return Spectrum(values[order], vectors[:, order])


def power_iteration(
    product: Product, n: int, k: int = 5, seed: int = 0, tolerance: float = 1e-4, most: int = 200
) -> Spectrum:
    """The same by repeated products, each vector kept apart from those found before."""
    rng = np.random.default_rng(seed)
    values, vectors = [], np.zeros((n, 0))
    for _ in range(k):
        v, value = rng.standard_normal(n), np.inf
        for _ in range(most):
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
