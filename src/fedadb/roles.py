"""What a setting is for: one classification, attached to the fields themselves."""

import math
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Literal, get_args, get_type_hints


@dataclass(frozen=True)
class Role:
    """The role of a setting, as metadata of its field: `Annotated[int, Role(affects="nothing")]`.

    A field without one has the default role: it changes results, server and sites must agree on
    it, and the paper prescribes its value.
    """

    # What the setting changes. "records": only what is recorded beside the results. "rounding":
    # only the last bits of the results.
    affects: Literal["results", "records", "rounding", "nothing"] = "results"
    shared: bool = True  # whether the sites of a real federation must have the server's value
    fixed_by_paper: bool = True  # whether another value is a deviation from the paper


Scale = Literal["log", "linear"]


@dataclass(frozen=True)
class Searched:
    """The values of a hyperparameter that are worth trying, as metadata of its field.

    `fedadb tune` searches this range, by default on a logarithmic scale.

    ```python
    from typing import Annotated


    @dataclass(frozen=True)
    class Mine(fedadb.FedAvg):
        mu: Annotated[float, fedadb.Searched(0.001, 1)] = 0.01
    ```
    """

    low: float
    high: float
    scale: Scale = "log"

    def __post_init__(self) -> None:
        # No BadInput: that is defined in a layer above. It is a ValueError, too.
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"{self}: low and high must be numbers, and low below high")
        if self.scale not in get_args(Scale):
            raise ValueError(f"{self}: scale must be one of {', '.join(get_args(Scale))}")
        if self.scale == "log" and self.low <= 0:
            raise ValueError(f'{self}: low must be above 0, or scale "linear"')


def searched_fields(cls: Any) -> dict[str, Searched]:
    """The fields of a dataclass that are worth a search, and their ranges.

    Only the metadata of a field itself count, not those of a union's members.
    """
    hints = get_type_hints(cls, include_extras=True)
    return {
        field.name: one
        for field in fields(cls)
        for one in getattr(hints[field.name], "__metadata__", ())
        if isinstance(one, Searched)
    }


@dataclass(frozen=True)
class Added:
    """Marks a setting that earlier runs do not have, as metadata of its field.

    At its default it is left out of a run's table, so that those runs keep their names and are not
    taken for other experiments than the runs of today.
    """


@cache
def added_defaults(cls: Any) -> dict[str, Any]:
    """The fields of a dataclass that were added later, and their defaults."""
    hints = get_type_hints(cls, include_extras=True)
    return {
        field.name: field.default
        for field in fields(cls)
        if any(isinstance(one, Added) for one in getattr(hints[field.name], "__metadata__", ()))
    }
