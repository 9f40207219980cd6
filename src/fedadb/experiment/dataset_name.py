"""The setting `dataset`: a registered name, or the user's own data in files."""

from pathlib import Path
from typing import Any

from fedadb.core.errors import BadInput
from fedadb.experiment.declarations import dataset_names, own_data_kinds
from fedadb.experiment.validation import suggest

IN_MEMORY = ("images", "vectors")  # what the names of data in memory begin with


def check_dataset(given: Any) -> str:
    """The name; the path of the user's own data is made absolute. BadInput if it is not known."""
    if not isinstance(given, str):
        raise BadInput(
            f"dataset: {type(given).__name__} is the wrong type; give a name, or in Python "
            "fedadb.Data(x_train, y_train, …)"
        )
    kind, colon, path = given.partition(":")
    if colon and kind in IN_MEMORY:
        raise BadInput(
            f"dataset = {given!r}: these data were in memory, not in a file; use Python, and "
            "pass the same fedadb.Data"
        )
    if colon and (kind not in own_data_kinds() or not path):
        raise BadInput(f"dataset = {given!r}: your own data are csv:PATH, npz:PATH or folder:PATH")
    if not colon and given not in dataset_names():
        known = suggest(given, [*dataset_names(), *(f"{kind}:PATH" for kind in own_data_kinds())])
        raise BadInput(f"dataset = {given!r}: is not known; {known}")
    if colon:  # absolute, so that the resolved experiment works from any directory
        return f"{kind}:{Path(path).expanduser().absolute()}"
    return given
