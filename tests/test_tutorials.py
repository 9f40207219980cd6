"""The tutorials run as they are written, but with little training."""

import glob
import re
import runpy
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from fedadb.experiment.presets import PRESETS
from tests.command_line import invoke, start

DOCS = Path(__file__).parent.parent / "docs"
TUTORIALS = DOCS / "tutorials"
AT_SITES = [TUTORIALS / "three-hospitals.md", TUTORIALS / "csv-at-three-sites.md"]
INDEX = TUTORIALS / "README.md"
PAGES = [DOCS / "start.md", *sorted(set(TUTORIALS.glob("*.md")) - {INDEX, *AT_SITES})]
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.DOTALL | re.MULTILINE)


SHORTER = {
    r"rounds( ?= ?)\d\d+": r"rounds\g<1>1",
    r"--seeds [\d,]+": "--seeds 0",
    r"--tuned \d": "--tuned 2",
}


def shortened(text: str) -> str:
    """One round instead of ten or more, one seed, and two runs to find settings."""
    for long, short in SHORTER.items():
        text = re.sub(long, short, text)
    return text


def commands(page: Path) -> Iterator[list[str]]:
    """Write the files of a tutorial into this directory, and yield its commands, in their order."""
    for language, title, text in BLOCK.findall(page.read_text()):
        if title or language == "python":
            Path(title or "program.py").write_text(shortened(text))
        if language == "python" and not title:
            yield ["python", "program.py"]
        elif language == "bash":
            for line in shortened(text).replace("\\\n", "").splitlines():
                yield shlex.split(line)


def execute(words: list[str]) -> None:
    """Execute a command, without `&` at its end."""
    words = [name for word in words for name in sorted(glob.glob(word)) or [word]]
    if words[0] == "fedadb":
        ended = invoke(*words[1:])
        assert ended.code == 0, ended.err
    elif words[0] == "python":
        runpy.run_path(words[1], run_name="__main__")
    else:
        assert words[0] in {"cp", "mkdir"}, words
        subprocess.run(words, check=True)


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(PRESETS["digits"]["local"], "epochs", 1)


@pytest.mark.integration
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_a_tutorial_runs(page: Path, tmp_path: Path) -> None:
    for words in commands(page):
        execute(words)
    assert list(tmp_path.rglob("rounds.jsonl"))


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.xdist_group("federation")
@pytest.mark.parametrize("page", AT_SITES, ids=lambda p: p.stem)
def test_a_tutorial_of_real_sites_runs(page: Path, tmp_path: Path) -> None:
    from fedadb.deploy.ports import free_port
    from tests.deploy.federation import GUARD

    port = str(free_port())
    with ExitStack() as sites:
        for words in commands(page):
            words = [word.replace("8443", port) for word in words]
            if words[-1] == "&":
                sites.callback(stop, start(*words[1:-1], errors=tmp_path / "site.log"), GUARD)
            else:
                execute(words)
                for file in tmp_path.glob("*.toml"):  # which a command may have written
                    file.write_text(shortened(file.read_text()))
    assert len((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()) == 1
    assert (tmp_path / "run" / "report" / "index.html").exists()


def stop(site: BaseProcess, seconds: float) -> None:
    """End a site, which would wait for the next run."""
    site.terminate()
    site.join(seconds)
    assert site.exitcode is not None
