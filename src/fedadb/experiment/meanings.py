"""Every setting: what it means, its default, its values and who reads it. Nothing imports torch.

The meaning is the comment beside the setting's field. There is no other list of settings.
"""

import dataclasses
from functools import cache
from itertools import groupby
from typing import Any, Literal, NamedTuple, get_type_hints

from fedadb.experiment import settings
from fedadb.experiment.declarations import (
    CHOSEN,
    SETTINGS,
    TABLES,
    Declaration,
    choices,
    dataset_names,
    declared,
    meanings,
)
from fedadb.experiment.presets import LEARNING_RATE, NAMES, PRESETS, RATES, SCENARIOS
from fedadb.experiment.ranges import describe_values, to_toml
from fedadb.experiment.toml_tables import flatten
from fedadb.partition import PARTITIONS
from fedadb.roles import Role, Searched

EFFECTS = {
    "results": "results",
    "records": "only what is recorded",
    "rounding": "only the last bits of the results",
    "nothing": "no result",
}


class Setting(NamedTuple):
    """A setting of an experiment."""

    key: str  # such as "local.lr"; of a filter "filter.norm"
    owner: str  # the name of what has it, such as "fedprox"; "": every experiment has it
    meaning: str
    default: str  # as in TOML; "": it must be given, or it is a table
    values: str  # that are allowed, such as "a number above 0"; "": a table
    searched: Searched | None  # what `fedadb tune` tries

    @property
    def role(self) -> Role:
        return settings.role(self.key)

    @property
    def affects(self) -> str:
        """What another value changes."""
        return EFFECTS[self.role.affects]

    @property
    def read_by(self) -> str:
        """Who reads the setting."""
        table = self.key.partition(".")[0]
        if table == "deployment" and self.role.shared:
            also = "; simulations too" if self.key.startswith("deployment.secure_") else ""
            return f"the server and its sites, which must have the same value{also}"
        if table == "deployment":
            return "the server of real sites; simulations ignore it"
        if table == "attack":
            return "simulations; a server of real sites refuses it"
        if table == "engine":
            return "the process that trains or evaluates"
        if self.role.shared:
            return "server and clients; real sites must have the server's value"
        return "the server"

    @property
    def other_defaults(self) -> str:
        """The defaults of datasets that have their own: "300 for pacs, organamnist; 40 for …"."""
        values = sorted(self.by_dataset.items(), key=lambda item: item[1])
        return "; ".join(
            f"{value} for {', '.join(dataset for dataset, _ in same)}"
            for value, same in groupby(values, key=lambda item: item[1])
        )

    @property
    def by_dataset(self) -> dict[str, str]:
        """The defaults of datasets that have their own, as in TOML."""
        found = {name: flat[self.key] for name, flat in _presets().items() if self.key in flat}
        if self.key == LEARNING_RATE:
            found |= {
                name: f"{min(rates.values())} to {max(rates.values())}, by method"
                for name, rates in RATES.items()
            }
        others = self.owner and to_toml(self.owner) != _default_name(self.key.rpartition(".")[0])
        return {} if others else found


@cache
def all_settings() -> tuple[Setting, ...]:
    """Every setting: first those of all experiments, then those of algorithms, filters, …."""
    found: dict[str, Setting] = {}
    for table, declarations in TABLES.items():
        for declaration in declarations:
            for setting in _settings_of(declaration, table):
                found.setdefault(setting.key, setting)
    found[SCENARIO.key] = SCENARIO
    own = [
        setting
        for key in CHOSEN
        for owner, declaration in choices(key).items()
        for setting in _settings_of(declaration, key, owner)
    ]
    return (*found.values(), *own)


def _settings_of(declaration: Declaration, table: str, owner: str = "") -> list[Setting]:
    made = _class(declaration)
    hints = get_type_hints(made, include_extras=True) if made else {}
    found = []
    for name, meaning in meanings(declaration).items():
        key, hint = f"{table}.{name}" if table else name, hints.get(name)
        values, default = describe_values(hint), _default(made, name)
        if key in CHOSEN:
            values, default = f"a name: {', '.join(choices(key))}", _default_name(key)
        if key == "dataset":
            values = f"a name: {', '.join(dataset_names())}, csv:PATH, npz:PATH, folder:PATH"
        searched = [m for m in getattr(hint, "__metadata__", ()) if isinstance(m, Searched)]
        found.append(Setting(key, owner, meaning, default, values, next(iter(searched), None)))
    return found


def _class(declaration: Declaration) -> Any:
    """The class itself if it needs no torch, or its fields; None if they need torch."""
    if declaration.path == SETTINGS:
        return getattr(settings, declaration.name)
    partitions = {cls.__name__: cls for cls in PARTITIONS.values()}
    return partitions.get(declaration.name) or declared(declaration)


def _default(made: Any, name: str) -> str:
    if made is None:
        return ""
    if made is settings.Settings:
        value = made.model_fields[name].default
    else:
        field = made.__dataclass_fields__[name]
        factory = field.default_factory
        value = field.default if factory is dataclasses.MISSING else factory()
    nothing = value is dataclasses.MISSING or dataclasses.is_dataclass(value)
    return "" if nothing else to_toml(value)


def _default_name(key: str) -> str:
    """The class that a setting such as `local.optimizer` names by default."""
    if key == "filter":
        return "[]"
    return to_toml(flatten(NAMES).get(f"{key}.name", "none"))


@cache
def _presets() -> dict[str, dict[str, str]]:
    """The defaults of each dataset that has its own, by dotted name."""
    found = {}
    for dataset, preset in PRESETS.items():
        flat = flatten(preset)
        if scenario := flat.get(SCENARIO.key):
            flat |= {f"federation.{name}": value for name, value in SCENARIOS[scenario].items()}
        found[dataset] = {key: to_toml(value) for key, value in flat.items()}
    return found


SCENARIO = Setting(
    "federation.scenario",
    owner="",
    meaning="clients and participation by one name: "
    + ", ".join(
        f"{name} ({size['clients']} clients, {100 * size['participation']:g} %)"
        for name, size in SCENARIOS.items()
    ),
    default=to_toml("cross-device"),  # it stands for the defaults of both
    values=describe_values(Literal[tuple(SCENARIOS)]),
    searched=None,
)
