import pytest
import torch
from torch import Tensor, nn

from fedadb.algorithms.fedavg import FedAvg
from fedadb.algorithms.fedgela import FedGELA, SimplexETF, prior_scale
from fedadb.core.algorithm import Context, Round
from fedadb.core.data import Batch, LocalPlan
from fedadb.core.errors import BadInput
from fedadb.core.model import Domain, Model, assemble
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector, Weights
from fedadb.engine.local import Learner
from tests.algorithms.scalar import direction
from tests.conftest import toy_shard


def model(algorithm: FedGELA | FedAvg) -> Model:
    with Stream(0).seeded():
        body = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU())
    return assemble(body, algorithm.heads, Domain.unbounded((1, 4, 4)), 3, Stream(0))


def context(w: Vector, counts: Tensor) -> Context[Weights]:
    return Context(Weights(w), (), counts, Round(1, 1, 1, 40), LocalPlan(), torch.tensor(1))


@pytest.mark.parametrize(("dim", "classes"), [(8, 3), (84, 11), (10, 10)])
def test_class_directions_are_a_simplex(dim: int, classes: int) -> None:
    M = SimplexETF(dim, classes, "batch").get_buffer("M")
    angles = M.T @ M
    expected = torch.full((classes, classes), -1 / (classes - 1)).fill_diagonal_(1)
    torch.testing.assert_close(angles, expected, atol=1e-5, rtol=0)
    assert M.sum(1).abs().max() < 1e-5


def test_more_classes_than_features_are_refused() -> None:
    with pytest.raises(BadInput, match="needs at least 5 features for 5 classes; got 3"):
        SimplexETF(3, 5, "batch")


def test_the_classifier_is_a_constant_of_the_model() -> None:
    f = model(FedGELA())
    assert f.weights().flat.numel() == 16 * 8 + 8 + 2 * 8
    before = f.constants()["heads.head.M"].clone()
    Learner(FedGELA(), f, LocalPlan(3, 8, lr=0.1)).train(
        toy_shard(), Weights(f.weights()), None, Round(1, 1, 1, 40), Stream(0)
    )
    assert torch.equal(f.constants()["heads.head.M"], before)


def test_the_scale_follows_the_clients_classes() -> None:
    assert prior_scale(torch.tensor([3, 3, 3])).tolist() == [1, 1, 1]
    assert prior_scale(torch.tensor([0, 7, 0])).tolist() == [0, 3, 0]
    assert prior_scale(torch.tensor([1, 5, 2, 0])).mean() == 1


def test_a_missing_class_has_no_say_and_a_uniform_client_no_scale() -> None:
    f, data = model(FedGELA()), toy_shard(12)
    w = f.weights()
    batch = Batch(data.transform.normalise(data.examples.x), data.examples.y)
    z = f(w, batch.x).logits.detach().requires_grad_()
    scaled = z * prior_scale(torch.tensor([4, 8, 0])) / 0.2
    (g,) = torch.autograd.grad(torch.nn.functional.cross_entropy(scaled, batch.y), z)
    assert g[:, 2].abs().max() == 0
    uniform = FedGELA(temperature=1.0).loss(f, w, batch, context(w, torch.tensor([4, 4, 4])))
    torch.testing.assert_close(uniform, FedAvg().loss(f, w, batch, None))  # type: ignore[arg-type]


def test_one_row_is_scaled_to_length() -> None:
    head = SimplexETF(8, 3, "batch")
    h = torch.randn(1, 8)
    expected = (8**0.5 * h / h.norm()) @ head.get_buffer("M")
    torch.testing.assert_close(head(h), expected)
    torch.testing.assert_close(SimplexETF(8, 3, "length").norm, None)


def test_gradients_are_clipped() -> None:
    f, data = model(FedGELA(temperature=1e-3)), toy_shard(12)
    w = f.weights()
    batch = Batch(data.transform.normalise(data.examples.x), data.examples.y)
    ctx = context(w, data.counts)
    free = direction(FedGELA(temperature=1e-3), f, w, batch, ctx, clip=None)
    short = direction(FedGELA(temperature=1e-3), f, w, batch, ctx, clip=0.5)
    assert free.norm() > 1
    assert short.norm().item() == pytest.approx(0.5, rel=1e-4)
    torch.testing.assert_close(short.flat, free.flat * (0.5 / free.norm()), rtol=1e-4, atol=1e-7)


def test_the_authors_norm_is_the_default() -> None:
    assert Learner(FedGELA(), model(FedGELA()), LocalPlan()).clip == 20
