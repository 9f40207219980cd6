"""FedRS's restricted softmax, with numbers worked out by hand."""

import pytest
import torch

from fedadb.algorithms.fedavg import FedAvg
from fedadb.algorithms.fedrs import FedRS
from tests.algorithms.logits import loss_and_gradient
from tests.algorithms.scalar import close

Z = [2.0, 1.0, 1.5]
SOFT = FedRS(variant="soft")


def test_by_hand() -> None:
    value, g = loss_and_gradient(FedRS(), Z, 0, [10, 5, 0])
    close(value, 0.503429)
    close(g, -0.395545, 0.222366, 0.086590)
    plain, at = loss_and_gradient(FedAvg(), Z, 0, [10, 5, 0])
    close(plain, 0.680270)
    close(at, -0.493520, 0.186324, 0.307196)


def test_the_soft_variant_by_hand() -> None:
    close(SOFT.scale(torch.tensor([10, 5, 0])), 1, 0.75, 0.5)
    value, g = loss_and_gradient(SOFT, Z, 0, [10, 5, 0])
    close(value, 0.452991)
    close(g, -0.364276, 0.136603, 0.091069)


def test_a_negative_logit_of_a_missing_class_rises() -> None:
    z = [2.0, 1.0, -1.5]
    close(loss_and_gradient(FedRS(), z, 0, [10, 5, 0])[0], 0.358937)
    close(loss_and_gradient(FedAvg(), z, 0, [10, 5, 0])[0], 0.335098)


@pytest.mark.parametrize("algorithm", [FedRS(alpha=0), FedRS(alpha=0, variant="soft")])
def test_a_scale_of_zero_freezes_the_missing_class_but_keeps_it(algorithm: FedRS) -> None:
    value, g = loss_and_gradient(algorithm, [2.0, 2.0, 9.0], 0, [5, 5, 0])
    close(value, (2 + torch.tensor(-2.0).exp()).log().item())
    assert g[2] == 0


def test_a_client_with_all_classes_trains_as_with_fedavg() -> None:
    plain = loss_and_gradient(FedAvg(), Z, 0, [10, 5, 1])
    for algorithm, counts in ((FedRS(), [10, 5, 1]), (SOFT, [4, 4, 4])):
        found = loss_and_gradient(algorithm, Z, 0, counts)
        assert torch.equal(found[0], plain[0])
        assert torch.equal(found[1], plain[1])
    assert loss_and_gradient(SOFT, Z, 0, [10, 5, 1])[0] < plain[0]


@pytest.mark.parametrize("variant", ["binary", "soft"])
def test_a_scale_of_one_is_fedavg(variant: str) -> None:
    algorithm = FedRS(alpha=1, variant=variant)  # type: ignore[arg-type]
    for counts in ([10, 5, 0], [7, 0, 0]):
        assert torch.equal(algorithm.scale(torch.tensor(counts)), torch.ones(3))


def test_a_client_with_one_class_still_learns() -> None:
    value, g = loss_and_gradient(FedRS(), Z, 0, [9, 0, 0])
    assert value > 0
    assert g.isfinite().all()
    assert (g[1:] > 0).all()
