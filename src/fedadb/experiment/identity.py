"""A run's identity: the name of its directory, and whether a directory belongs to it."""

import hashlib
import inspect
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from fedadb.core.errors import BadInput, Fault
from fedadb.datasets.tensors import KINDS
from fedadb.experiment.config import Experiment
from fedadb.experiment.own_model import own_sources
from fedadb.experiment.settings import affecting, own_parts
from fedadb.experiment.toml_tables import flatten, load_toml
from fedadb.models.own import MadeBody
from fedadb.storage.files import read_json
from fedadb.storage.run_directory import ENVIRONMENT, EXPERIMENT


def default_directory(experiment: Experiment) -> Path:
    return Path("runs") / run_name(experiment)


def run_name(experiment: Experiment) -> str:
    """Dataset, algorithm, seed, and a digest of everything that can change results or records."""
    _require_name(experiment)
    table = experiment.table()
    dataset = table["dataset"].rpartition("/")[2]
    words = [dataset[-60:], table["algorithm"]["name"], f"seed{table['seed']}"]
    identity = [_identity(table), *own_code(experiment).values()]
    digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()
    return re.sub(r"[^\w.-]+", "-", "-".join([*words, digest[:8]]))


def own_code(experiment: Experiment) -> dict[str, str]:
    """A digest of the source of all code that is the user's own, by its `module:Name`.

    The digest covers the whole files of a class and of its base classes, or of a function, but not
    other modules that they import.
    """
    parts = own_parts_of(experiment)
    return {name: _source_digest(own_sources(part)) for name, part in parts.items()}


def own_parts_of(experiment: Experiment) -> dict[str, Any]:
    """The parts that are the user's own code, by their `module:Name`."""
    table = experiment.table()
    parts: dict[str, Any] = {
        table["model"]["name"]: experiment.model,
        table["algorithm"]["name"]: experiment.algorithm,
        table["federation"]["partition"]["name"]: experiment.federation.partition,
        table["local"]["optimizer"]["name"]: experiment.local.optimizer,
        table["local"]["schedule"]["name"]: experiment.local.schedule,
        table["server"]["optimizer"]["name"]: experiment.server.optimizer,
        **{one["name"]: made for one, made in zip(table["filter"], experiment.filter, strict=True)},
    }
    if experiment.attack is not None:
        parts[table["attack"]["name"]] = experiment.attack
    return {name: part for name, part in parts.items() if ":" in name}


def _source_digest(sources: Sequence[Any]) -> str:
    digest = hashlib.sha256()
    for own in sources:
        for base in own.__mro__ if isinstance(own, type) else (own,):
            package = base.__module__.partition(".")[0]
            foreign = package in {"fedadb", *sys.stdlib_module_names} and base is not own
            if package == "torch" or foreign:
                continue
            try:
                digest.update(Path(inspect.getfile(base)).read_bytes())
            except (OSError, TypeError):  # defined interactively
                digest.update(base.__qualname__.encode())
    return digest.hexdigest()


def _require_name(experiment: Experiment) -> None:
    """Raise BadInput if a part of the experiment is the user's own, and its name is not enough."""
    model = experiment.model
    if isinstance(model, MadeBody) and "<" in model.name:
        raise BadInput(
            f"model = {model.name!r}: its name does not identify it; define it at the top level of "
            "a module, or pass the nn.Module that it makes"
        )
    for name in own_parts_of(experiment):
        if "<locals>" in name:
            raise BadInput(
                f"{name} is defined inside of a function, so its name does not identify it; define "
                "it at the top level of a module"
            )


def require_same_run(out: Path, experiment: Experiment) -> None:
    """Raise BadInput unless the directory is new, or holds this experiment and no other."""
    _require_name(experiment)
    if not out.exists():
        return
    if not out.is_dir():
        raise BadInput(f"{out} is a file; --out must name a directory")
    if not (out / EXPERIMENT).exists():
        for path in out.iterdir():
            # An earlier process may have ended before it wrote the experiment.
            if not path.name.startswith((".", EXPERIMENT)):
                raise BadInput(f"{out} is not a run: it holds {path.name}; choose another --out")
        return
    table = load_toml(out / EXPERIMENT)
    _require_same_own_code(table, experiment, out)
    table = _with_parts_in_memory(table, experiment, out)
    try:
        written = Experiment.read(table)
    except BadInput as error:
        raise BadInput(f"{out / EXPERIMENT} is not a resolved experiment: {error}") from error
    there, here = (_identity(e.table()) for e in (written, experiment))
    # Names come first: if one differs, so do the settings that belong to it.
    keys = sorted(there.keys() | here.keys(), key=lambda key: (not key.endswith(".name"), key))
    for key in keys:
        if there.get(key) != here.get(key):
            raise BadInput(
                f"{out} holds another experiment: {key} is {there.get(key)!r} there and "
                f"{here.get(key)!r} here; choose another --out"
            )
    recorded = _recorded_code(out)
    for name, digest in own_code(experiment).items():
        if recorded.get(name, digest) != digest:
            raise BadInput(
                f"{out} was run with another version of {name}: its source has changed since; "
                "choose another --out"
            )


def _require_same_own_code(table: dict[str, Any], experiment: Experiment, out: Path) -> None:
    """Compare the names of own classes before any is imported: the directory may be foreign."""
    there, here = flatten(table), flatten(experiment.table())
    for part in own_parts(there):
        key = f"{part}.name"
        name = str(there.get(key, there.get(part)))
        if ":" in name and name != here.get(key):
            raise BadInput(
                f"{out} holds another experiment: {key} is {name!r} there and {here.get(key)!r} "
                "here; choose another --out"
            )


def _with_parts_in_memory(
    table: dict[str, Any], experiment: Experiment, out: Path
) -> dict[str, Any]:
    """The table, with the experiment's own data and module in place of equal names.

    Data and modules in memory cannot be read back by their names.
    """
    here, there = experiment.table(), str(table.get("dataset"))
    if there.partition(":")[0] in KINDS and there != here["dataset"]:
        raise BadInput(
            f"{out} holds another experiment: dataset is {there!r} there and "
            f"{here['dataset']!r} here; choose another --out"
        )
    equal = [key for key in ("dataset", "model") if table.get(key) == here[key]]
    return table | {key: getattr(experiment, key) for key in equal}


def _recorded_code(out: Path) -> dict[str, str]:
    try:
        environment = read_json(out / ENVIRONMENT, TypeAdapter(dict[str, Any]))
    except (OSError, Fault):  # not written yet; or damaged, which `note_environment` reports
        return {}
    code = environment.get("own_code")
    return code if isinstance(code, dict) else {}


def _identity(table: dict[str, Any]) -> dict[str, Any]:
    """The settings by which two runs are different runs."""
    return affecting(flatten(table), "results", "records")
