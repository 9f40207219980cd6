"""The package as people install it: its metadata, and clean environments."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ONE_ROUND = "fedadb run --set rounds=1 --set local.epochs=1 --out run"
# What each extra is for.
USES = {
    "docs": f"PYTHONPATH={ROOT} NO_MKDOCS_2_WARNING=1 python -m mkdocs build --quiet "
    f"--config-file {ROOT}/mkdocs.yml --site-dir $PWD/site",
    "federation": "fedadb deploy keys server --host localhost",
    "mlflow": f"{ONE_ROUND} --track mlflow",
    "onnx": f"{ONE_ROUND} && fedadb export run --to model.onnx",
    "privacy": f"{ONE_ROUND} --set federation.sampling=poisson "
    "--set 'filter=[{name=\"dp\", norm=1.0, noise=1.0}]'",
    "ray": f"{ONE_ROUND} --set engine.backend=ray",
    "storm": "python -c 'import atheris'",
    "tensorboard": f"{ONE_ROUND} --track tensorboard",
    "tune": "fedadb tune --algorithms fedavg --budget 2 --set rounds=1 --set validation=0.1",
    "wandb": f"{ONE_ROUND} --track wandb",
}
PYTHONS = ["python3.11", "python3.12", "python3.13"]


def test_version_and_date_are_the_same_in_changelog_and_citations() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"]
    released = f"## {PROJECT['version']} - {citation['date-released']}"
    sections = re.findall(r"^## .*", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert next(name for name in sections if name != "## Unreleased") == released
    assert f"version = {{{PROJECT['version']}}}" in (ROOT / "README.md").read_text()


def test_every_extra_is_tried() -> None:
    assert USES.keys() == PROJECT["optional-dependencies"].keys() - {"dev"}


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution."""
    sources, place = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("dist")
    shutil.copytree(ROOT / "src", sources / "src", ignore=shutil.ignore_patterns("*.egg-info"))
    for name in ("LICENSE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, sources)
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(place), str(sources)]
    subprocess.run(words, check=True, capture_output=True)
    assert list(place.glob("*.tar.gz"))
    (built,) = place.glob("*.whl")
    return built


def install(python: str, requirement: str, place: Path) -> dict[str, str]:
    """Install into a new environment; returns the variables with which its programs run."""
    # What this process finds there would count as installed.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment["PATH"] = f"{place / 'bin'}{os.pathsep}{environment['PATH']}"
    subprocess.run([python, "-m", "venv", str(place)], check=True)
    pip = [str(place / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, *constraints, requirement], check=True, env=environment)
    return environment


@pytest.mark.slow
@pytest.mark.parametrize("python", PYTHONS)
def test_the_wheel_runs_in_a_clean_environment(python: str, wheel: Path, tmp_path: Path) -> None:
    try:
        subprocess.run([python, "--version"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"there is no {python} here")
    environment = install(python, str(wheel), tmp_path / "env")
    words = f"{ONE_ROUND} && fedadb report run && fedadb --version"
    done = subprocess.run(
        words, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith(f"fedadb {PROJECT['version']}, torch ")
    assert "kernels: " in done.stdout


@pytest.mark.slow
def test_the_types_are_complete(wheel: Path, tmp_path: Path) -> None:
    environment = install(sys.executable, str(wheel), tmp_path / "env")
    words = [sys.executable, "-m", "pyright", "--verifytypes", "fedadb", "--ignoreexternal"]
    done = subprocess.run(
        [*words, "--outputjson"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE
    )
    assert json.loads(done.stdout)["typeCompleteness"]["completenessScore"] > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("extra", USES)
def test_an_extra_is_enough_for_what_it_is_for(extra: str, wheel: Path, tmp_path: Path) -> None:
    environment = install(sys.executable, f"{wheel}[{extra}]", tmp_path / "env")
    done = subprocess.run(
        USES[extra], shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
