"""Data in memory: tensors or arrays as the dataset of an experiment."""

import hashlib
import json
import re
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fedadb.core.data import Splits
from fedadb.core.errors import BadInput
from fedadb.core.transform import Transform
from fedadb.datasets.arrays import to_examples
from fedadb.datasets.splits import to_splits
from fedadb.storage.tensorfile import raw_bytes

KINDS = IMAGES, VECTORS = "images", "vectors"
SOURCE = "fedadb.Data"  # in errors


class Data:
    """Tensors or NumPy arrays as the dataset of an experiment.

    Inputs are images or anything else that a model takes. Images are uint8, or floats from 0 to 1,
    with 1 or 3 channels; the channels come first or last. All other inputs are floats of any shape:
    vectors, rows of a table, embeddings. Labels are whole numbers from 0.

    The data are not copied where torch can use them as they are, so do not change them afterwards.
    A run records their digest: it resumes on the same data only.

    ```python
    x, y = torch.randn(100, 10), torch.arange(100) % 4
    data = fedadb.Data(x[:80], y[:80], x[80:], y[80:], classes=["a", "b", "c", "d"])
    experiment = fedadb.Experiment(dataset=data, rounds=1, federation={"partition": "iid"})
    ```
    """

    def __init__(
        self,
        x_train: Tensor | ArrayLike,
        y_train: Tensor | ArrayLike,
        x_test: Tensor | ArrayLike | None = None,
        y_test: Tensor | ArrayLike | None = None,
        *,
        classes: Sequence[str] | None = None,
        name: str = "data",
    ) -> None:
        """Check the data.

        Args:
            x_train: The inputs to train on, one per row.
            y_train: Their labels.
            x_test: The inputs to test on; None: a fixed fifth of each class of the others.
            y_test: Their labels.
            classes: The names of the classes; None: their numbers.
            name: What runs and reports call the data.
        """
        if not re.fullmatch(r"[\w.-]+", name):
            raise BadInput(f"{SOURCE}: name = {name!r}: use letters, digits, '-', '_' and '.'")
        if (x_test is None) != (y_test is None):
            raise BadInput(f"{SOURCE}: x_test and y_test belong together; give both or none")
        parts = {"train": (x_train, y_train)}
        if x_test is not None and y_test is not None:
            parts["test"] = x_test, y_test
        examples = []
        for part, (x, y) in parts.items():
            arrays = {f"x_{part}": _to_array(x), f"y_{part}": _to_array(y)}
            examples.append(to_examples(SOURCE, arrays, *arrays))
        if isinstance(classes, str):
            raise BadInput(f"{SOURCE}: classes = {classes!r}: must be a list of names")
        names = None if classes is None else tuple(str(one) for one in classes)
        self.splits: Splits = to_splits(SOURCE, examples, names)
        kind = IMAGES if isinstance(self.splits.transform, Transform) else VECTORS
        self._description = f"{kind}:{name}@{self._digest()[:16]}"

    def __str__(self) -> str:
        """What an experiment writes in place of the data: their kind, name and digest."""
        return self._description

    def __repr__(self) -> str:
        return f"<{SOURCE} {self}>"

    def _digest(self) -> str:
        train, test, classes, *_ = self.splits
        shapes = [list(tensor.shape) for tensor in (*train, *test)]
        digest = hashlib.sha256(json.dumps([classes, shapes, str(train.x.dtype)]).encode())
        for tensor in (*train, *test):
            digest.update(raw_bytes(tensor))
        return digest.hexdigest()


def _to_array(given: Tensor | ArrayLike) -> NDArray[np.generic]:
    if not isinstance(given, Tensor):
        try:
            return np.asarray(given)
        except ValueError as error:  # rows of different lengths
            raise BadInput(f"{SOURCE}: {error}") from error
    if given.layout is not torch.strided:
        raise BadInput(f"{SOURCE}: a sparse tensor; use to_dense()")
    tensor = given.detach().cpu()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
