import pytest
import torch

from fedadb.algorithms.fedasam import FedASAM
from fedadb.core.vector import Vector
from tests.algorithms.scalar import close, tensors, vector


def test_the_perturbation_by_hand() -> None:
    """T = |w|: Tg = (3, −2), T²g = (3, −4), ½ T²g / √13."""
    eps = 0.5 * FedASAM().perturbation(vector(1, 2), vector(3, -1))
    close(eps.flat, 0.416025, -0.554700)


def test_the_official_perturbation_by_hand() -> None:
    w, g = tensors(weight=[1, 2], bias=[1, 2]), tensors(weight=[3, -1], bias=[3, -1])
    official = FedASAM(rho=0.7, eta=0.2, scope="weights")

    def alone(name: str) -> Vector:
        part = Vector.of({name: w[name]})
        return 0.7 * official.perturbation(part, Vector.of({name: g[name]}))

    close(alone("weight").flat, 0.716757, -0.803033)
    close(alone("bias").flat, 0.664078, -0.221359)
    # Together, one norm over both: T = (1.2, 2.2) for the weight and 1 for the bias.
    tg = torch.tensor([3.6, -2.2, 3.0, -1.0])
    joint = 0.7 * torch.tensor([1.2, 2.2, 1.0, 1.0]) * tg / tg.norm()
    close(0.7 * official.perturbation(w, g).flat, *joint.tolist())


def test_its_length_is_rho_where_it_is_measured() -> None:
    w, g = vector(1, -2, 0.5), vector(3, -1, 2)
    eps = 0.5 * FedASAM().perturbation(w, g)
    assert (eps / w.abs()).norm().item() == pytest.approx(0.5)


def test_weights_at_zero_are_not_perturbed_and_scale_does_not_matter() -> None:
    w, g = vector(0, 2), vector(3, -1)
    assert FedASAM().perturbation(w, g).flat[0] == 0
    once, scaled = FedASAM().perturbation(w, g), FedASAM().perturbation(5 * w, g / 5)
    close(scaled.flat, *(5 * once).flat.tolist())
