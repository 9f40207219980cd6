"""A run's directory: what it is called, and whose it is."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from fedadb.core.errors import BadInput
from fedadb.core.files import EXPERIMENT
from fedadb.experiment import config
from fedadb.experiment.config import Experiment
from fedadb.experiment.presets import IDLE, flat


def default_directory(experiment: Experiment) -> Path:
    return Path("runs") / run_name(experiment)


def run_name(experiment: Experiment) -> str:
    """What is run, in a few words and a digest: another name for whatever gives other results."""
    table = experiment.table()
    dataset = table["dataset"].rpartition("/")[2]
    words = [dataset[-60:], table["algorithm"]["name"], f"seed{table['seed']}"]
    digest = hashlib.sha256(json.dumps(_decisive(table)).encode()).hexdigest()
    return re.sub(r"[^\w.-]+", "-", "-".join([*words, digest[:8]]))


def require_own(out: Path, experiment: Experiment) -> None:
    """The directory is free, or holds this very experiment."""
    if not out.exists():
        return
    if not out.is_dir():
        raise BadInput(f"{out} is a file; --out must name a directory")
    if (out / EXPERIMENT).exists():
        try:
            written = Experiment.read(config.load(out / EXPERIMENT))
        except BadInput as error:
            raise BadInput(f"{out / EXPERIMENT} is not a resolved experiment: {error}") from error
        there, here = (_decisive(e.table()) for e in (written, experiment))
        # A name first: what belongs to it differs as well.
        keys = sorted(there.keys() | here.keys(), key=lambda key: (not key.endswith(".name"), key))
        for key in keys:
            if there.get(key) != here.get(key):
                raise BadInput(
                    f"{out} holds another experiment: {key} is {there.get(key)!r} there and "
                    f"{here.get(key)!r} here; choose another --out"
                )
    else:
        for path in out.iterdir():
            # A process may have ended before it wrote the experiment.
            if not path.name.startswith((".", EXPERIMENT)):
                raise BadInput(f"{out} is not a run: it holds {path.name}; choose another --out")


def _decisive(table: dict[str, Any]) -> dict[str, Any]:
    """The settings that decide what is computed."""
    return {key: value for key, value in flat(table).items() if key not in IDLE}
