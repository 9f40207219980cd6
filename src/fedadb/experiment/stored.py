"""A run, read back from its directory."""

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from fedadb.core.data import DataSpec
from fedadb.core.errors import BadInput, Fault
from fedadb.core.model import Model
from fedadb.core.packing import unpack
from fedadb.core.vector import Vector
from fedadb.experiment.build import FederatedData, build_data, build_model
from fedadb.experiment.config import Experiment
from fedadb.experiment.toml_tables import load_toml, merge
from fedadb.progress import Progress, no_progress
from fedadb.storage.files import read_json
from fedadb.storage.run_directory import EXPERIMENT, MODEL, SITES
from fedadb.storage.tensorfile import read_tensors


@dataclass(frozen=True, eq=False)
class StoredRun:
    """A run with its experiment, model and data; its weights are read when they are first used."""

    directory: Path
    experiment: Experiment
    spec: DataSpec
    f: Model
    data: FederatedData | None  # None: the sites of a real federation have them

    @cached_property
    def w(self) -> Vector:
        """The deployed weights of a finished run; also restores the model's constants."""
        path, command = self.directory / MODEL, self._command()
        if not path.exists():
            raise BadInput(
                f"{self.directory} is not finished: it has no {MODEL} yet; {command} finishes it"
            )
        tensors, metadata = read_tensors(path, f"delete it, and {command} writes it again")
        if json.loads(metadata["classes"]) != list(self.spec.classes):
            raise BadInput(f"{self.directory}: its data have other classes now than in the run")
        layout = self.f.layout
        named = {name: tensors[name] for name in layout.names if name in tensors}
        w = unpack(Vector, named, layout)
        if not w.flat.isfinite().all():
            raise Fault(f"{path} has weights that are not finite: the run diverged")
        for name, constant in self.f.constants().items():  # views of the module's own tensors
            constant.copy_(tensors[name])
        return w

    def require_data(self) -> FederatedData:
        if self.data is None:
            raise BadInput(f"{self.directory} was trained by sites: their data are not here")
        return self.data

    def _command(self) -> str:
        if self.data is None:
            return "the server's command"
        return f"`fedadb run {self.directory / EXPERIMENT} --out {self.directory}`"


def read_run(directory: Path, progress: Progress = no_progress) -> StoredRun:
    """The run of a directory. torch computes it on the CPU in float32, however it was trained.

    So its model has second derivatives, and its results do not depend on the machine's kernels.
    """
    if not (directory / EXPERIMENT).exists():
        raise BadInput(f"{directory} is not a run: it has no {EXPERIMENT}")
    engine = {"device": "cpu", "precision": "float32", "kernels": "torch"}
    e = Experiment.read(merge(load_toml(directory / EXPERIMENT), {"engine": engine}))
    sites = directory / SITES
    if sites.exists():
        spec = read_sites(sites)["data"]
        return StoredRun(directory, e, spec, build_model(e, spec), None)
    data = build_data(e, progress)
    return StoredRun(directory, e, data.spec, build_model(e, data.spec), data)


class SitesFile(TypedDict):
    """The content of sites.json: client k of the run is the site `names[k]`."""

    run: str
    names: list[str]
    rows: list[int]
    data: DataSpec
    attempt: NotRequired[int]  # of secure aggregation


def read_sites(path: Path) -> SitesFile:
    """Read a sites.json; a Fault if it is damaged."""
    return read_json(path, TypeAdapter(SitesFile))


def spec_to_table(spec: DataSpec) -> dict[str, Any]:
    """The spec as a table that JSON can hold."""
    return asdict(spec)
