"""The docs agree with the code: what they show runs, and what they list is what exists."""

import csv
import dataclasses
import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import tomli_w
import torch
import torch.nn.functional as F
import typer
import yaml
from torch import nn

import fedadb
from fedadb.algorithms import ALGORITHMS, SERVER_METHODS
from fedadb.algorithms.fedopt import METHODS
from fedadb.analysis import ANALYSES
from fedadb.attacks import ATTACKS
from fedadb.cli import app
from fedadb.cli.reproduce import STUDIES
from fedadb.core.optimizers import OPTIMIZERS
from fedadb.core.schedules import SCHEDULES
from fedadb.core.server_optimizers import SERVER_OPTIMIZERS
from fedadb.datasets import DATASETS, OWN
from fedadb.datasets.tensors import KINDS
from fedadb.experiment import config, validation
from fedadb.experiment.presets import PRESETS, RATES, SCENARIOS
from fedadb.experiment.toml_tables import load_toml
from fedadb.exports import FEDOPT, PAPER, algorithm_names
from fedadb.filters import FILTERS
from fedadb.models import MODELS
from fedadb.partition import PARTITIONS
from fedadb.report import labels
from fedadb.roles import Searched, added_defaults, searched_fields
from tests.experiment.test_study import SIZES
from website.api_pages import api_pages
from website.commands_page import commands_page
from website.settings_page import settings_page

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
# Pages of the site that are made from the code.
GENERATED = {"reference/commands.md": commands_page(), "reference/settings.md": settings_page()}
GENERATED |= {f"reference/api/{name}": text for name, text in api_pages().items()}
EXPORTED = dir(fedadb)
MOST_USED = (
    "Algorithm", "Experiment", "Learner", "Model", "Observer", "OneByOne", "Pool", "Scores",
    "Shard", "Stacked", "TestSet", "Vector", "class_counts", "evaluate", "federate", "rounds",
    "run", "simulate",
)  # fmt: skip


def table(page: str, header: str) -> dict[str, list[str]]:
    """The table of a page whose first column has this header: its rows by their first cell."""
    text = (DOCS / page).read_text()
    lines = text.partition(f"| {header} |")[2].partition("\n\n")[0].splitlines()[2:]
    rows = [re.split(r"(?<!\\)\|", line.strip("|")) for line in lines]
    assert rows, f"{page} has no table of {header}"
    return {row[0].strip(" `"): [cell.strip() for cell in row[1:]] for row in rows}


def value(cell: str) -> Any:
    """What a cell of a table states: a number, a list, or a word."""
    try:
        return tomllib.loads(f"value = {cell.strip('`')}")["value"]
    except tomllib.TOMLDecodeError:
        return cell.strip("`")


def code_blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


# programs


@pytest.fixture
def little_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs run as they are written, but clients train one epoch where nothing is said."""
    monkeypatch.setitem(PRESETS["digits"]["local"], "epochs", 1)


@pytest.mark.integration
@pytest.mark.usefixtures("little_training")
def test_the_program_in_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = code_blocks(README.read_text())
    assert programs
    monkeypatch.chdir(tmp_path)
    for program in programs:
        exec(compile(program, "README.md", "exec"), {})


@pytest.mark.integration
def test_the_program_in_the_page_about_data_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (program,) = code_blocks((DOCS / "data.md").read_text())
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "data.md", "exec"), {})


def example_names() -> dict[str, Any]:
    """What the examples in docstrings may use: a toy federation on vectors of length 10."""
    rng, algorithm = fedadb.Stream(seed=0), fedadb.FedAvg()
    x, y = torch.randn(80, 10, generator=rng.generator()), torch.arange(80) % 4
    examples = fedadb.Examples(x, y)
    shards = [
        fedadb.Shard(examples, rows, classes=4, transform=fedadb.AsIs())
        for rows in torch.split(torch.arange(80), 20)
    ]
    domain = fedadb.Domain.unbounded((10,))
    with rng.seeded():
        f = fedadb.assemble(nn.Linear(10, 8), algorithm.heads, domain, classes=4, rng=rng)
    learner = fedadb.Learner(algorithm, f, fedadb.LocalPlan(epochs=1))
    cohort = fedadb.OneByOne(learner, shards, rng)
    sent, round = fedadb.Weights(f.weights()), fedadb.Round(1, 2, 4, 80)
    return {
        "fedadb": fedadb, "torch": torch, "nn": nn, "F": F, "NamedTuple": NamedTuple,
        "dataclass": dataclasses.dataclass, "rng": rng, "f": f, "x": x, "shard": shards[0],
        "shards": shards, "learner": learner, "cohort": cohort, "sent": sent, "round": round,
        "replies": cohort(sent, [0, 3], round),
    }  # fmt: skip


EXAMPLES = {name: code_blocks(inspect.getdoc(getattr(fedadb, name)) or "") for name in EXPORTED}


def test_the_most_used_names_have_an_example() -> None:
    assert [name for name in MOST_USED if not EXAMPLES[name]] == []


@pytest.mark.integration
@pytest.mark.usefixtures("little_training")
@pytest.mark.parametrize("name", [name for name, examples in EXAMPLES.items() if examples])
def test_the_examples_in_docstrings_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for example in EXAMPLES[name]:
        exec(compile(example, f"docstring of {name}", "exec"), example_names())


# exported names


def test_every_exported_name_exists() -> None:
    stub = (ROOT / "src" / "fedadb" / "__init__.pyi").read_text()
    declared = re.findall(r"import \w+ as (\w+)", stub)
    assert sorted(declared) == EXPORTED
    assert all(getattr(fedadb, name) is not None for name in declared)


def test_importing_the_package_does_not_import_torch() -> None:
    program = "import sys, fedadb; print(fedadb.__version__, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split()[1:] == ["False"], done.stderr


@pytest.mark.parametrize(
    "registry", [ALGORITHMS, ATTACKS, FILTERS, MODELS, PARTITIONS], ids=lambda r: next(iter(r))
)
def test_everything_in_a_registry_is_exported(registry: dict[str, type]) -> None:
    for cls in registry.values():
        assert getattr(fedadb, cls.__name__) is cls


def test_algorithms_are_in_the_order_of_the_paper_and_then_of_their_names() -> None:
    names = algorithm_names()
    assert tuple(names[: len(PAPER)]) == PAPER
    assert {"FedProx", "SCAFFOLD"} <= set(names[len(PAPER) :])
    assert names[len(PAPER) :] == sorted(names[len(PAPER) :], key=str.lower)


@pytest.mark.parametrize("name", EXPORTED)
def test_every_exported_name_has_a_docstring_of_its_own(name: str) -> None:
    doc = getattr(fedadb, name).__doc__
    assert doc
    # Dataclasses and NamedTuples generate one like "Reply(w, examples)".
    assert not doc.startswith(f"{name}(")


# the README and CONTRIBUTING


def test_the_readme_shows_five_commands() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    shown = re.findall(r"^fedadb (\w+) .*#", README.read_text(), re.MULTILINE)
    assert len(shown) == 5
    assert set(shown) <= set(commands)


def test_the_readme_compares_as_many_methods_as_there_are() -> None:
    assert f"| methods included | {len(ALGORITHMS) + len(SERVER_METHODS)} |" in README.read_text()


def test_every_page_is_in_the_navigation() -> None:
    """A folder in the navigation stands for all of its pages."""
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    named = set(re.findall(r"[\w/-]+(?:\.md|/)(?=')", repr(config["nav"])))
    for page in DOCS.rglob("*.md"):
        uri = page.relative_to(DOCS).as_posix()
        assert uri in named or f"{uri.rpartition('/')[0]}/" in named, uri


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith("http"):
            continue
        path, _, heading = target.partition("#")
        linked = page.parent / path if path else page
        if linked.resolve().is_relative_to(DOCS / "reference"):
            assert linked.resolve().relative_to(DOCS).as_posix() in GENERATED, target
            continue
        assert linked.exists(), target
        if heading:
            titles = re.findall(r"^#+ (.+)$", linked.read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", t).lower().replace(" ", "-") for t in titles}
            assert heading in anchors, target


def test_contributing_names_every_package() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    packages = [p.parent.name for p in (ROOT / "src" / "fedadb").glob("*/__init__.py")]
    assert len(packages) > 10
    assert [name for name in packages if f" {name}/ " not in text.replace("\n", " ")] == []


# experiments and settings


@pytest.mark.parametrize(
    "path", sorted((ROOT / "experiments").glob("*.toml")), ids=lambda p: p.stem
)
def test_experiment_files_are_valid_and_state_their_command(path: Path) -> None:
    assert f"fedadb run experiments/{path.name}" in path.read_text()
    config.Experiment.read(load_toml(path))


def default_settings() -> dict[str, Any]:
    """The general defaults by dotted name, as the quick start lists them."""
    resolved = config.Experiment(dataset="npz:data.npz").table()
    defaults = config.Experiment.model_fields
    settings: dict[str, Any] = {}
    for key, value in resolved.items():
        if isinstance(value, dict) and "name" not in value:
            default = defaults[key].default
            inner = validation.to_table(default)
            inner |= added_defaults(type(default))  # type: ignore[arg-type]  # a class is hashable
            inner |= {"partition": "dirichlet"} if key == "federation" else {}
            inner |= {"optimizer": "sgd", "schedule": "exponential"} if key == "local" else {}
            settings |= {f"{key}.{name}": inner.get(name) for name in {**value, **inner}}
        elif isinstance(value, dict):
            settings[key] = value["name"]
        else:
            default = defaults[key].default
            settings[key] = list(default) if isinstance(default, tuple) else default
    settings["federation.partition_seed"] = "seed"  # None stands for the experiment's seed
    return settings


def test_the_quick_start_lists_every_setting_and_no_other() -> None:
    documented = table("quickstart.md", "key")
    assert documented.keys() == default_settings().keys() | {"federation.scenario", "attack"}


def test_the_quick_start_states_the_defaults() -> None:
    documented, checked = table("quickstart.md", "key"), 0
    for key, default in default_settings().items():
        stated = documented[key][1]
        if not stated.startswith(("by dataset", "half of")):  # these are described in words
            assert value(stated) == default, key
            checked += 1
    assert checked > 25


def test_the_quick_start_lists_the_named_values() -> None:
    documented = table("quickstart.md", "key")
    for key, names in (
        ("model", MODELS),
        ("dataset", [f"{kind}:PATH" for kind in OWN]),
        ("federation.partition", PARTITIONS),
        ("local.optimizer", OPTIMIZERS),
        ("local.schedule", SCHEDULES),
        ("server.optimizer", SERVER_OPTIMIZERS),
        ("federation.scenario", SCENARIOS),
    ):
        for name in names:
            assert f"`{name}`" in documented[key][0] or f'"{name}"' in documented[key][0], name


def test_the_quick_start_states_the_settings_of_optimisers_and_schedules() -> None:
    documented = table("quickstart.md", "name")
    registries: dict[str, Mapping[str, type[Any]]] = {
        "local.optimizer": OPTIMIZERS,
        "local.schedule": SCHEDULES,
        "server.optimizer": SERVER_OPTIMIZERS,
    }
    expected = {
        f'{key} = "{name}"': {
            field.name: field.default
            for field in dataclasses.fields(cls)
            if field.default is not dataclasses.MISSING
        }
        for key, registry in registries.items()
        for name, cls in registry.items()
    }
    assert documented.keys() == expected.keys()
    stated = {
        name: tomllib.loads("\n".join(re.findall(r"`(\w+ = [^`]+)`", cells[0])))
        for name, cells in documented.items()
    }
    assert documented['server.optimizer = "yogi"'] == ["as `adam`"]
    stated['server.optimizer = "yogi"'] = stated['server.optimizer = "adam"']
    assert stated == expected


def test_the_quick_start_has_every_dataset_with_defaults_of_its_own() -> None:
    documented = ", ".join(table("quickstart.md", "dataset")).split(", ")
    own_kinds = [*OWN, *KINDS]
    own = {"your own data" if name in own_kinds else labels.dataset_name(name) for name in PRESETS}
    assert set(documented) == own | {"all others"}


# datasets, partitions, analyses, studies


def test_the_docs_list_every_dataset_with_its_numbers() -> None:
    documented = table("data.md", "name")
    assert documented.keys() == DATASETS.keys()
    for name, (classes, shape, rows, *_) in documented.items():
        source = DATASETS[name]
        assert int(classes) == source.classes
        assert shape == "×".join(map(str, source.shape))
        assert rows.replace(" ", "") == "/".join(map(str, source.rows))


def test_the_docs_list_every_partition_with_its_defaults() -> None:
    documented = table("data.md", "`federation.partition`")
    named = [{"name": v} if isinstance(v, str) else v for v in map(value, documented)]
    assert [given["name"] for given in named] == list(PARTITIONS)
    for given in named:
        made = validation.to_named(PARTITIONS, given, "federation.partition")
        if given["name"] != "file":
            assert made == PARTITIONS[given["name"]]()
            assert validation.to_named_table(PARTITIONS, made) == given


def test_the_numbers_of_the_page_on_methods_are_those_of_its_file() -> None:
    with (DOCS / "results" / "methods.csv").open(encoding="utf-8", newline="") as file:
        measured = {row["method"]: row for row in csv.DictReader(file)}
    shown = table("results/methods.md", "method")
    assert len(shown) == len(measured) == 25
    for method, (rate, *scores) in shown.items():
        row = measured[method]
        for score, key in zip(scores, ("picked", "best 5", "last 10", "forgetting"), strict=False):
            assert score == f"{float(row[key]):.1f} ± {float(row[f'{key} std']):.1f}"
        assert RATES["organamnist"][method.lower()] == float(rate)


def test_the_rates_of_methods_are_documented() -> None:
    shown = table("tuning.md", "method")
    assert {name.lower() for name in shown} == RATES["digits"].keys()
    for name, rates in shown.items():
        assert [float(rate) for rate in rates] == [
            RATES[dataset][name.lower()] for dataset in ("digits", "organamnist")
        ]


def test_the_page_about_privacy_lists_every_setting() -> None:
    settings = table("privacy.md", "setting")
    assert settings.keys() == {one.name for one in dataclasses.fields(fedadb.DP)}


def test_the_page_about_robustness_lists_every_attack_and_rule_with_its_settings() -> None:
    attacks, rules = table("robustness.md", "attack"), table("robustness.md", "filter")
    assert attacks.keys() == ATTACKS.keys()
    clip = {"clip` with `norm", "clip` with `quantile"}
    assert rules.keys() == (FILTERS.keys() - {"clip", "norm_bound", "int8", "top_k", "dp"}) | clip
    shared = {"f", "weights", "clients"}  # these are described below the tables
    for cells, cls in [
        *((attacks[name][1], cls) for name, cls in ATTACKS.items()),
        *((rules[name][1], cls) for name, cls in FILTERS.items() if name in rules),
    ]:
        for field in dataclasses.fields(cls):  # type: ignore[arg-type]
            assert f"`{field.name}" in cells or field.name == "clients", (cls, field.name)
            if field.name not in shared and field.default is not None:
                stated = dict(re.findall(r"`(\w+) = ([^`]+)`", cells))
                assert tomllib.loads(f"x = {stated[field.name]}")["x"] == field.default


def test_every_analysis_has_a_page() -> None:
    assert {page.stem for page in (DOCS / "analyses").glob("*.md")} == set(ANALYSES)


def test_the_docs_list_every_study_with_its_number_of_runs() -> None:
    documented = {name: int(cells[1]) for name, cells in table("reports.md", "name").items()}
    assert documented.keys() == STUDIES.keys()
    assert documented == SIZES  # another test compares these with the studies themselves


def test_reports_have_a_name_for_every_method_and_dataset() -> None:
    names = {name: cls.__name__ for name, cls in ALGORITHMS.items()}
    assert names | dict(zip(SERVER_METHODS, METHODS, strict=True)) == labels.METHODS
    assert DATASETS.keys() == labels.DATASETS.keys()


# algorithms


INDEX = DOCS / "algorithms" / "README.md"
METHOD_PAGES = sorted(set(INDEX.parent.glob("*.md")) - {INDEX})


def test_every_algorithm_has_a_page() -> None:
    assert {page.stem for page in METHOD_PAGES} == set(ALGORITHMS) | {"fedopt"}


def test_the_table_of_algorithms_has_a_row_for_each_page() -> None:
    rows = table("algorithms/README.md", "method")
    linked = [re.fullmatch(r"\[(.+)\]\((\w+)\.md\)", row) for row in rows]
    names = {one[2]: one[1] for one in linked if one}
    known = labels.METHODS | {"fedopt": ", ".join(FEDOPT)}
    assert names == {page.stem: known[page.stem] for page in METHOD_PAGES}
    assert all(len(cells) == 4 for cells in rows.values())


def test_the_page_of_fedopt_states_the_settings_of_each_method() -> None:
    documented = table("algorithms/fedopt.md", "name")
    assert list(documented) == list(SERVER_METHODS)
    for name, optimizer in SERVER_METHODS.items():
        for option, default in validation.to_table(optimizer()).items():
            assert f"`{tomli_w.dumps({option: default}).strip()}`" in documented[name][1]


def test_every_equation_of_a_method_is_marked_where_it_is_computed() -> None:
    for page in METHOD_PAGES:
        source = (ROOT / "src" / "fedadb" / "algorithms" / f"{page.stem}.py").read_text()
        for equation in re.findall(r"`# (Eq\. \(\d+\))`", page.read_text()):
            assert equation in source, (page.name, equation)


@pytest.mark.parametrize("name", sorted(ALGORITHMS.keys() - {"fedadb"}))
def test_every_option_of_a_method_is_on_its_page_with_its_default(name: str) -> None:
    page = (DOCS / "algorithms" / f"{name}.md").read_text()
    for option, default in validation.to_table(ALGORITHMS[name]()).items():
        toml = tomli_w.dumps({option: default}).strip()
        assert f"`{toml}`" in page


def stated_range(text: str) -> Searched | None:
    """The first range that a text states, such as "searched from 0.1 to 1"."""
    found = re.search(r"[Ss]earched\s+from ([\d.e-]+\d) to ([\d.e-]*\d)( on a linear scale)?", text)
    if found is None:
        return None
    return Searched(float(found[1]), float(found[2]), "linear" if found[3] else "log")


# what is said of an option: up to the next one, and in a table to the end of its line
SAID_OF_OPTION = re.compile(r"`(\w+) = [^`]+`((?:(?!`\w+ = |\n\||\n\n).)*)", re.DOTALL)


def said_of_options(name: str) -> list[tuple[str, str]]:
    """The options of a method that its page names, with what it says of each."""
    if name == "fedadb":
        return [(row, cells[-1]) for row, cells in table("algorithms/fedadb.md", "field").items()]
    if name in SERVER_METHODS:
        return SAID_OF_OPTION.findall(table("algorithms/fedopt.md", "name")[name][1])
    return SAID_OF_OPTION.findall((DOCS / "algorithms" / f"{name}.md").read_text())


@pytest.mark.parametrize("name", [*ALGORITHMS, *SERVER_METHODS])
def test_the_range_of_a_searched_option_is_stated_beside_it(name: str) -> None:
    found = [(option, stated_range(text)) for option, text in said_of_options(name)]
    stated = {option: one for option, one in found if one}
    assert stated == searched_fields((ALGORITHMS | SERVER_METHODS)[name])


def test_the_quick_start_states_the_range_of_the_learning_rate() -> None:
    stated = stated_range(table("quickstart.md", "key")["local.lr"][0])
    assert searched_fields(fedadb.LocalPlan) == {"lr": stated}


def test_every_option_of_fedadb_is_on_its_page_with_its_default() -> None:
    documented = table("algorithms/fedadb.md", "field")
    assert list(documented) == [f.name for f in dataclasses.fields(fedadb.FedADB)]
    for option, default in validation.to_table(fedadb.FedADB()).items():
        assert documented[option][1] == "adaptive" or value(documented[option][1]) == default
