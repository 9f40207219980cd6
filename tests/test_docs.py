"""What the documents say runs as it stands."""

import dataclasses
import re
from pathlib import Path

import pytest
import tomli_w

import fedadb
from fedadb.algorithms import ALGORITHMS
from fedadb.experiment import config, validation
from fedadb.experiment.study import read_study

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.integration
def test_the_program_in_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert programs
    monkeypatch.chdir(tmp_path)
    for program in programs:
        exec(compile(program, "README.md", "exec"), {})


@pytest.mark.parametrize(
    "path", sorted((ROOT / "experiments").glob("*.toml")), ids=lambda p: p.stem
)
def test_experiment_files_read_and_say_how_to_run_them(path: Path) -> None:
    text = path.read_text()
    if "[[grid]]" in text:
        assert f"fedadb reproduce {path.stem}\n" in text
        assert read_study(path).experiments
    else:
        assert f"fedadb run experiments/{path.name}" in text
        config.Experiment.read(config.load_toml(path))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_every_setting_is_in_the_quick_start() -> None:
    """And no other: the table's keys are those of a resolved experiment."""
    text = (ROOT / "docs" / "quickstart.md").read_text()
    documented = set(re.findall(r"^\| `([\w.]+)` \|", text, re.MULTILINE))
    table = config.Experiment().table()
    settings = {"federation.scenario", "federation.partition_seed"}
    for key, value in table.items():
        nested = isinstance(value, dict) and "name" not in value
        settings |= {f"{key}.{inner}" for inner in value} if nested else {key}
    assert documented == settings


def test_every_exported_name_is_there() -> None:
    source = (ROOT / "src" / "fedadb" / "__init__.py").read_text()
    declared = re.findall(r"import \w+ as (\w+)", source)
    assert sorted(declared) == dir(fedadb)
    assert all(getattr(fedadb, name) is not None for name in declared)


def test_every_equation_of_a_method_is_marked_where_it_is_computed() -> None:
    for page in sorted((ROOT / "docs" / "algorithms").glob("*.md")):
        source = (ROOT / "src" / "fedadb" / "algorithms" / f"{page.stem}.py").read_text()
        for equation in re.findall(r"`# (Eq\. \(\d+\))`", page.read_text()):
            assert equation in source, (page.name, equation)


def test_every_algorithm_has_a_page() -> None:
    assert {p.stem for p in (ROOT / "docs" / "algorithms").glob("*.md")} == set(ALGORITHMS)


@pytest.mark.parametrize("name", sorted(ALGORITHMS.keys() - {"fedadb"}))
def test_every_option_of_a_method_is_on_its_page_with_its_default(name: str) -> None:
    page = (ROOT / "docs" / "algorithms" / f"{name}.md").read_text()
    for option, default in validation.to_table(ALGORITHMS[name]()).items():
        toml = tomli_w.dumps({option: default}).strip()
        assert f"`{toml}`" in page


def test_every_option_of_fedadb_is_documented() -> None:
    page = (ROOT / "docs" / "algorithms" / "fedadb.md").read_text()
    options = page.partition("## Options")[2].partition("##")[0]
    documented = re.findall(r"^\| `(\w+)` \|", options, re.MULTILINE)
    assert documented == [f.name for f in dataclasses.fields(fedadb.FedADB)]
