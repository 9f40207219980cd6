"""FedAvgM, FedAdagrad, FedAdam and FedYogi: names of FedAvg with a server optimiser."""

from pathlib import Path
from typing import Any

import pytest
import torch

import fedadb
from fedadb.algorithms import SERVER_METHODS
from fedadb.algorithms.fedavg import FedAvg
from fedadb.algorithms.fedopt import METHODS, FedOpt
from fedadb.core.algorithm import Round
from fedadb.core.errors import BadInput
from fedadb.core.packing import size
from fedadb.core.server_optimizers import ServerAdam, ServerSGD
from fedadb.core.stream import Stream
from fedadb.core.vector import Weights
from fedadb.engine.federate import federate, initial
from fedadb.experiment import study
from fedadb.experiment.config import Experiment
from fedadb.experiment.identity import run_name
from fedadb.experiment.toml_tables import parse_toml
from fedadb.export.classifier import ModelCard, untrained_classifier
from tests.algorithms.scalar import close, reply, vector
from tests.test_every_algorithm import Federation

NAMES = list(SERVER_METHODS)


def test_the_names_are_those_of_the_methods() -> None:
    assert list(METHODS) == ["FedAvgM", "FedAdagrad", "FedAdam", "FedYogi"]
    assert [Experiment(algorithm=name).algorithm.name for name in NAMES] == list(METHODS)


@pytest.mark.parametrize(
    ("name", "settings", "first", "second"),
    [
        ("fedavgm", {}, (0.1, -0.02), (0.24, 0.002)),
        ("fedavgm", {"momentum": 0.7}, (0.1, -0.02), (0.22, 0.006)),
        ("fedadagrad", {"lr": 0.1}, (0.099005, -0.095125), (0.143328, -0.007660)),
        ("fedadam", {"lr": 0.1}, (0.090503, -0.061846), (0.205451, -0.022392)),
        ("fedyogi", {"lr": 0.1}, (0.090499, -0.061803), (0.205018, -0.022395)),
    ],
)
def test_two_rounds_by_hand(
    name: str,
    settings: dict[str, float],
    first: tuple[float, float],
    second: tuple[float, float],
) -> None:
    """The mean of two clients with 1 and 3 rows moves by (0.1, −0.02), then by (0.05, 0.04)."""
    algorithm = Experiment(algorithm={"name": name, **settings}).algorithm
    s = algorithm.init(vector(0, 0))
    for t, (delta, expected) in enumerate((((0.1, -0.02), first), ((0.05, 0.04), second)), start=1):
        x, y = (s.w + vector(*delta)).flat.tolist()
        replies = [reply(1, x - 0.3, y + 0.6), reply(3, x + 0.1, y - 0.2)]
        s = algorithm.aggregate(s, replies, Round(t, 2, 2, 4))
        close(s.w.flat, *expected)


@pytest.mark.parametrize("optimizer", [kind() for kind in METHODS.values()], ids=list(METHODS))
def test_each_is_fedavg_with_the_server_optimiser_to_the_bit(optimizer: Any) -> None:
    ours, theirs = Federation(FedOpt(optimizer)), Federation(FedAvg())
    mine = ours.play(ours.start(3))
    learner, round = theirs.cohort.learner, theirs.start(3).round
    plain = federate(
        learner,
        theirs.cohort,
        choose=lambda t: [(k + t) % 4 for k in (0, 2, 3)],
        rng=Stream(0),
        start=initial(learner, round, optimizer),
        optimizer=optimizer,
    )
    for one, other in zip(mine, plain, strict=True):
        assert torch.equal(one.server.w.flat, other.server.w.flat)
        for state, expected in zip(one.server.optimizer, other.optimizer_state, strict=True):
            assert torch.equal(state.flat, expected.flat)


def test_without_momentum_fedavgm_is_fedavg_to_the_bit() -> None:
    ours, theirs = Federation(FedOpt(ServerSGD(momentum=0.0))), Federation(FedAvg())
    for mine, plain in zip(ours.play(ours.start(2)), theirs.play(theirs.start(2)), strict=True):
        assert torch.equal(mine.server.w.flat, plain.server.w.flat)


def test_it_sends_what_fedavg_sends() -> None:
    federation = Federation(FedOpt(ServerAdam()))
    last = federation.play(federation.start(1))[-1]
    weights = size(Weights(last.server.w))
    assert size(last.sent) == weights
    assert last.replies[0].bytes == weights + last.replies[0].inspected.examples.nbytes
    assert size(last.server) == 3 * weights


# a name of its own


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_survives_its_toml(name: str) -> None:
    e = Experiment(algorithm={"name": name, "lr": 0.03})
    table = parse_toml(e.toml(), "")
    assert table["algorithm"]["name"] == name
    assert table["algorithm"]["lr"] == 0.03
    assert table["server"]["optimizer"] == {"name": "none"}
    assert Experiment.read(table) == e
    assert Experiment(algorithm=e.algorithm) == e
    assert run_name(e).startswith(f"digits-{name}-seed0-")


def test_a_comparison_takes_the_names_and_the_settings_of_one() -> None:
    given = {"algorithm": {"name": "fedadam", "lr": 0.003}}
    plain, adam, yogi = study.compare(given, ["fedavg", "fedadam", "fedyogi"], [0])
    assert plain.algorithm == FedAvg()
    assert adam.algorithm == FedOpt(ServerAdam(lr=0.003))
    assert yogi.table()["algorithm"]["lr"] == 0.01


@pytest.mark.parametrize("optimizer", ["yogi", "adam", {"name": "sgd", "lr": 0.5}])
def test_a_server_optimiser_beside_the_name_is_refused(optimizer: Any) -> None:
    sentence = (
        r"^server\.optimizer: FedAdam has a server step of its own, so it takes none; its settings "
        r"are the algorithm's, such as algorithm\.lr$"
    )
    with pytest.raises(BadInput, match=sentence):
        Experiment(algorithm="fedadam", server={"optimizer": optimizer})


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"lr": 0}, r"^algorithm\.lr = 0: must be greater than 0$"),
        (
            {"momentum": 0.5},
            r"^algorithm\.momentum is not a setting; .* Possible here are lr, beta1, ",
        ),
        (
            {"optimizer": "adam"},
            r"^algorithm\.optimizer is not a setting; .* Possible here are lr, beta1, ",
        ),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        Experiment(algorithm={"name": "fedadam", **settings})
    with pytest.raises(BadInput, match=r"^algorithm\.lr = -1"):
        Experiment(algorithm=FedOpt(ServerAdam(lr=-1)))


def test_an_optimiser_is_no_algorithm() -> None:
    sentence = (
        r"^algorithm = ServerSGD\(.*\): is a server optimiser; give it as server\.optimizer, "
    )
    with pytest.raises(BadInput, match=sentence + "or name one of fedavgm, "):
        Experiment(algorithm=ServerSGD())


class Halved(ServerSGD):
    """An optimiser of one's own."""


def test_an_optimiser_of_ones_own_belongs_to_the_server() -> None:
    sentence = (
        r"^algorithm = FedOpt\(optimizer=Halved\(.*\)\): has an optimiser of your own; give it as "
        r"server\.optimizer, with algorithm = 'fedavg'$"
    )
    with pytest.raises(BadInput, match=sentence):
        Experiment(algorithm=FedOpt(Halved()))
    assert Experiment(algorithm="fedavg", server={"optimizer": Halved()}).server.optimizer


def test_a_client_that_diverges_is_reported_by_the_name(tmp_path: Path) -> None:
    e = Experiment(
        algorithm="fedadagrad",
        rounds=2,
        model={"name": "mlp", "hidden": [4]},
        local={"epochs": 1, "lr": 1e30},
        engine={"workers": 1},
    )
    with pytest.raises(fedadb.Fault, match=r"^FedAdagrad: client \d+ diverged in round 1"):
        fedadb.run(e, tmp_path / "run")


def test_an_exported_model_of_it_can_be_made_again() -> None:
    e = Experiment(algorithm="fedyogi", model="lenet")
    card = ModelCard(e.toml(), tuple("0123456789"), (1, 28, 28), (0.5,), (0.5,))
    model = untrained_classifier(parse_toml(card.experiment, ""), card, features=84)
    assert model.to_empty(device="cpu")(torch.rand(2, 1, 28, 28)).shape == (2, 10)
