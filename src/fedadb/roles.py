"""What a setting is for: one classification, attached to the fields themselves."""

from dataclasses import dataclass
from typing import Literal


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


@dataclass(frozen=True)
class Searched:
    """The values of a hyperparameter that are worth trying, as metadata of its field.

    `Annotated[float, Ge(0), Searched(0.001, 1)]`: `fedadb tune` searches this range, by default on
    a logarithmic scale.
    """

    low: float
    high: float
    scale: Literal["log", "linear"] = "log"
