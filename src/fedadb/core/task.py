"""What is to be learnt: which images, and which classes they show."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fedadb.core.data import Splits
from fedadb.core.transform import Transform


@dataclass(frozen=True)
class Task:
    classes: tuple[str, ...]
    shape: tuple[int, ...]  # channels, height, width
    transform: Transform

    def table(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def read(table: Mapping[str, Any]) -> "Task":
        transform: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in table["transform"].items()
        }
        return Task(tuple(table["classes"]), tuple(table["shape"]), Transform(**transform))

    @staticmethod
    def of(splits: Splits) -> "Task":
        return Task(splits.classes, tuple(splits.test.x.shape[1:]), splits.transform)
