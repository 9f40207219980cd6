"""Models of one's own: modules, classes of modules, and functions that make them."""

import importlib
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fedadb
from fedadb.core.errors import BadInput
from fedadb.datasets.tensors import Data
from fedadb.experiment import identity
from fedadb.experiment import run as runs
from fedadb.experiment.build import build_data, build_model
from fedadb.experiment.config import Experiment
from fedadb.experiment.validation import own_name

RNG = np.random.default_rng(0)
Y = np.arange(180) % 3
X = RNG.normal(size=(180, 6)) + 3 * np.eye(3, 6)[Y]
DATA = fedadb.Data(X, Y)
HERE = __name__


class Net(nn.Module):
    """As people write it: it knows its sizes."""

    def __init__(self, inputs: int = 6, width: int = 5) -> None:
        super().__init__()
        self.layer = nn.Linear(inputs, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).relu()  # type: ignore[no-any-return]


class Shaped(nn.Module):
    def __init__(self, shape: tuple[int, ...], bias: bool | None = True) -> None:
        super().__init__()
        self.layer = nn.Linear(shape[0], 4, bias=bool(bias))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)  # type: ignore[no-any-return]


def make_net(shape: tuple[int, ...], sizes: tuple[int, ...] = (4,)) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], sizes[0]), nn.ReLU())


def make_anything(**settings: Any) -> nn.Module:
    return Net(**settings)


def make_list() -> Any:
    return [nn.Linear(6, 4)]


class Square(nn.Module):
    """Its output is not one row per input."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :, None] * x[:, None, :]


class Activated(nn.Module):
    """What it computes depends on more than its weights and its text."""

    def __init__(self, activation: Any = "relu", scale: Tensor | None = None) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)
        nn.init.constant_(self.layer.weight, 0.5)
        nn.init.constant_(self.layer.bias, 0.5)
        self.activation = activation
        self.register_buffer("scale", scale, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).relu()  # type: ignore[no-any-return]


class Random(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.layer(x))


@dataclass(frozen=True)
class Described:
    width: int = 3

    def body(self, shape: tuple[int, ...]) -> nn.Module:
        return nn.Linear(shape[0], self.width)


@dataclass(frozen=True)
class NotAModel:
    width: int = 3


an_instance = Net()


def experiment(model: Any, **more: Any) -> Experiment:
    settings: dict[str, Any] = {
        "dataset": DATA,
        "rounds": 2,
        "algorithm": "fedavg",
        "local": {"epochs": 1, "batch_size": 16},
        "engine": {"workers": 1},
    }
    return Experiment(**{**settings, **more, "model": model})


def body_weights(e: Experiment) -> Tensor:
    f = build_model(e, build_data(e).spec)
    return torch.cat([w.flatten() for name, w in f.weights().views().items() if "body" in name])


@pytest.mark.parametrize(
    ("model", "size", "table"),
    [
        (Net, 35, {"name": f"{HERE}:Net"}),
        (Shaped, 28, {"name": f"{HERE}:Shaped"}),
        (make_net, 28, {"name": f"{HERE}:make_net"}),
        (f"{HERE}:Net", 35, {"name": f"{HERE}:Net"}),
        ({"name": f"{HERE}:Net", "width": 2}, 14, {"name": f"{HERE}:Net", "width": 2}),
        (
            {"name": f"{HERE}:make_net", "sizes": [3]},
            21,
            {"name": f"{HERE}:make_net", "sizes": [3]},
        ),
        (
            {"name": f"{HERE}:make_anything", "width": 2},
            14,
            {"name": f"{HERE}:make_anything", "width": 2},
        ),
        (
            {"name": f"{HERE}:Shaped", "bias": "none"},
            24,
            {"name": f"{HERE}:Shaped", "bias": "none"},
        ),
        (f"{HERE}:Described", 21, {"name": f"{HERE}:Described", "width": 3}),
        (Described(2), 14, {"name": f"{HERE}:Described", "width": 2}),
    ],
)
def test_what_a_model_may_be(model: Any, size: int, table: dict[str, Any]) -> None:
    e = experiment(model)
    assert len(body_weights(e)) == size
    assert e.table()["model"] == table
    written = tomllib.loads(e.toml())
    again = Experiment.read({**written, "dataset": DATA})
    assert torch.equal(body_weights(again), body_weights(e))
    assert identity.run_name(again) == identity.run_name(e)
    assert list(identity.own_code(e)) == [table["name"]]


@pytest.mark.parametrize("model", [Net, make_net, lambda: Net()])
def test_weights_follow_from_the_seed(model: Any) -> None:
    torch.manual_seed(1)
    first = body_weights(experiment(model))
    torch.manual_seed(2)
    assert torch.equal(body_weights(experiment(model)), first)
    assert not torch.equal(body_weights(experiment(model, seed=1)), first)


def test_an_instance_keeps_its_weights_and_is_never_changed(tmp_path: Path) -> None:
    module = Net()
    before = {name: w.clone() for name, w in module.state_dict().items()}
    e = experiment(module)
    expected = torch.cat([w.flatten() for w in before.values()])
    for seed in (0, 1):
        assert torch.equal(body_weights(experiment(module, seed=seed)), expected)
    history = fedadb.run(e, tmp_path / "run")
    assert len(history.rounds) == 2
    assert all(torch.equal(w, before[name]) for name, w in module.state_dict().items())
    with torch.no_grad():
        module.layer.weight.zero_()  # the experiment has a copy
    assert torch.equal(body_weights(e), expected)


def test_an_instance_is_known_by_its_text_and_weights() -> None:
    layer = nn.Linear(6, 4)
    module, activated = nn.Sequential(layer), nn.Sequential(layer, nn.ReLU())
    name = experiment(module).table()["model"]["name"]
    assert name == experiment(module).table()["model"]["name"]
    assert name.startswith("torch.nn.modules.container:Sequential@")
    assert experiment(activated).table()["model"]["name"] != name
    with torch.no_grad():
        layer.weight[0, 0] += 1
    assert experiment(module).table()["model"]["name"] != name


@pytest.mark.integration
@pytest.mark.parametrize("model", [Net(), Net, make_net], ids=["instance", "class", "function"])
def test_a_run_with_a_module_resumes(model: Any, tmp_path: Path) -> None:
    whole = fedadb.run(experiment(model, rounds=3), tmp_path / "whole")
    with runs.start_run(experiment(model, rounds=3), tmp_path / "run") as active:
        next(active.rounds)
    resumed = fedadb.run(experiment(model, rounds=3), tmp_path / "run")
    assert resumed.accuracy == whole.accuracy
    assert (tmp_path / "run/model.safetensors").read_bytes() == (
        tmp_path / "whole/model.safetensors"
    ).read_bytes()
    with pytest.raises(BadInput, match=r"holds another experiment: model\.name is .* there and"):
        fedadb.run(experiment(Net(width=3), rounds=3), tmp_path / "run")


def test_a_function_that_its_name_does_not_identify_is_refused(tmp_path: Path) -> None:
    """Two lambdas of one file would be the same run."""
    models = [lambda width=width: Net(width=width) for width in (3, 4)]
    for model in (*models, local_class()):
        e = experiment(model)
        assert len(body_weights(e))  # what needs no directory works
        with pytest.raises(BadInput, match=r"its name does not identify it; define it at the top"):
            fedadb.run(e, tmp_path / "run")
        with pytest.raises(BadInput, match=r"its name does not identify it"):
            identity.run_name(e)
    assert not (tmp_path / "run").exists()


def local_class() -> type[nn.Module]:
    class Local(Net):
        pass

    return Local


def test_a_stored_instance_cannot_be_read_back() -> None:
    e = experiment(Net(), dataset="digits")
    with pytest.raises(BadInput, match="was a module in memory, not in a file; use Python, and"):
        Experiment.read(tomllib.loads(e.toml()))


def test_a_changed_source_is_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def written(comment: str, model: str) -> tuple[dict[str, str], str]:
        """The digests and the name of an experiment with this source."""
        text = "from torch import nn\nclass Net(nn.Linear):\n    pass\n"
        text += "def make():\n    return nn.Linear(6, 4)\nnet = Net(6, 4)\nnet.load_state_dict("
        text += "{k: v.zero_() for k, v in net.state_dict().items()})\n"
        text += "nested = nn.Sequential(net)\n"
        (tmp_path / "nets_for_identity.py").write_text(f"{text}# {comment}\n")
        importlib.invalidate_caches()
        sys.modules.pop("nets_for_identity", None)
        own: Any = f"nets_for_identity:{model}"
        if model in ("net", "nested"):
            own = getattr(importlib.import_module("nets_for_identity"), model)
        e = experiment(own)
        return identity.own_code(e), identity.run_name(e)

    for model in ("make", "net", "nested"):
        one, same, other = (written(word, model) for word in ("one", "one", "other"))
        assert one == same
        assert one[0].keys() == other[0].keys()
        assert one[0] != other[0]
        assert one[1] != other[1]


def test_the_source_of_torch_is_not_the_users() -> None:
    one, other = (nn.Sequential(*parts) for parts in ([nn.Linear(6, 4)], [nn.ReLU()]))
    digests = [set(identity.own_code(experiment(module)).values()) for module in (one, other)]
    assert digests[0] == digests[1]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            {"name": f"{HERE}:Net", "widht": 3},
            f"model.widht is not a setting of {HERE}:Net; did you mean width?",
        ),
        (nn.Linear, "model.in_features is missing: torch.nn.modules.linear:Linear needs it"),
        ({"name": f"{HERE}:make_list"}, "must return an nn.Module, not list"),
        ({"name": f"{HERE}:Net", "width": "wide"}, f"model = '{HERE}:Net': cannot be made: "),
        ({"name": f"{HERE}:Net", "width": -1}, f"model = '{HERE}:Net': cannot be made: "),
        (f"{HERE}:an_instance", "must be a class of nn.Module, a function that returns an"),
        (f"{HERE}:NotAModel", "or a dataclass with body(shape)"),
        (f"{HERE}:HERE", "must be a class of nn.Module, a function that returns an nn.Module"),
        (f"{HERE}:Nothing", "cannot be imported"),
        ("no_such_module:Net", "cannot be imported"),
        (3, "model = 3: must be a name, or a table with a name"),
        (Square(), "has shape (2, 6, 6) for a batch of 2; it must be one row per input"),
        (Random(), "the body's output is random: two passes over equal inputs differ"),
        (nn.Linear(7, 4), "does not take inputs of shape (6,): mat1 and mat2"),
        (nn.Sequential(nn.Linear(6, 4), nn.Dropout()), "is dropout, whose output is random"),
        (nn.BatchNorm1d(6), "keeps running statistics"),
        ("lenet", "model = 'mlp' takes any"),
    ],
)
def test_wrong_models_are_refused_in_one_sentence(model: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        fedadb.run(experiment(model), tmp_path / "run")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_modules_that_compute_different_things_are_different_models() -> None:
    different = [
        Activated("relu"),
        Activated("tanh"),
        Activated(("tanh", 2)),
        Activated(F.relu),
        Activated(torch.tanh),
        Activated(scale=torch.ones(1)),
        Activated(scale=torch.zeros(1)),
    ]
    names = [experiment(module).table()["model"]["name"] for module in different]
    assert len(set(names)) == len(different)
    assert experiment(Activated("relu")).table()["model"]["name"] == names[0]


def test_floats_without_channels_are_no_images_for_a_model_of_images() -> None:
    x = RNG.random((180, 28, 28))
    with pytest.raises(BadInput, match=r"have the shape 28×28; grey images .* x\[:, None\]; model"):
        build_experiment_model(fedadb.Data(x, Y))
    build_experiment_model(fedadb.Data(x[:, None], Y))


def build_experiment_model(data: fedadb.Data) -> None:
    e = experiment("lenet", dataset=data)
    build_model(e, build_data(e).spec)


def test_a_class_in_a_script_goes_by_the_name_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    class Script(nn.Module):
        pass

    monkeypatch.setattr(Script, "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "/a/b/train.py", False)
    assert own_name(Script).startswith("train:")


@pytest.mark.parametrize("model", [nn.Sequential(nn.LazyLinear(4)), lambda: nn.LazyLinear(4)])
def test_a_layer_without_a_size_is_refused(model: Any) -> None:
    """Its initial weights would not follow from the seed."""
    x, y = torch.randn(400, 6), torch.arange(400) % 2
    with pytest.raises(BadInput, match="has no size yet: state it in place of a lazy layer"):
        build_model(Experiment(dataset=Data(x, y), model=model), Data(x, y).splits.spec)
