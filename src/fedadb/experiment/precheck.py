"""Checks settings without importing torch, so that a mistake is answered at once.

Algorithms, models and optimisers need torch, so their settings are checked as declared in their
source. What cannot be checked in this way is left to the full check.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from fedadb.core.errors import BadInput
from fedadb.core.schedules import SCHEDULES
from fedadb.experiment import validation
from fedadb.experiment.declarations import TABLES, choices, declared
from fedadb.experiment.presets import complete
from fedadb.experiment.settings import Settings

NEED_TORCH = (
    "model",
    "local",
    "algorithm",
    "filter",
    "attack",
)  # settings that are no fields of Settings


def precheck(given: Mapping[str, Any]) -> None:
    """Raise BadInput if the table of an experiment has a mistake that is found without torch."""
    table = complete(given)
    own = {key: table.pop(key) for key in NEED_TORCH if key in table}
    for key in table:
        if key not in Settings.model_fields:
            known = [*Settings.model_fields, *NEED_TORCH]
            raise BadInput(validation.unknown_setting(key, known))
    try:
        Settings(**table)
    except ValidationError as error:
        raise BadInput(validation.explain(error, "", Settings)) from error
    if "local" in own:
        _check_local(own["local"])
    if isinstance(table.get("server"), dict) and isinstance(table["server"].get("optimizer"), dict):
        _check_chosen_or_none("server.optimizer", table["server"]["optimizer"])
    for key in ("algorithm", "model"):
        if key in own:
            _check_chosen(key, own[key])
    if "attack" in own:
        _check_chosen_or_none("attack", own["attack"])
    if isinstance(filters := own.get("filter"), list):
        for i, one in enumerate(filters):
            _check_chosen("filter", one, f"filter.{i}")


def _check_local(given: Any) -> None:
    if isinstance(given, dict):
        given = dict(given)
        if isinstance(given.get("optimizer"), dict):
            _check_chosen("local.optimizer", given["optimizer"])
        schedule = given.get("schedule")
        if isinstance(schedule, dict) and ":" not in str(schedule.get("name")):
            given["schedule"] = validation.to_named(SCHEDULES, schedule, "local.schedule")
        else:
            given.pop("schedule", None)
    (plan,) = TABLES["local"]
    if checked := declared(plan):
        validation.to_dataclass(checked, given, "local")


def _check_chosen_or_none(key: str, given: Any) -> None:
    if not validation.is_none(given, key, choices(key)):
        _check_chosen(key, given)


def _check_chosen(key: str, given: Any, path: str = "") -> None:
    """Check the class that the setting names, and its settings; `path` is the key in errors."""
    if not isinstance(given, (str, dict)):
        return
    table = {"name": given} if isinstance(given, str) else dict(given)
    name, known, path = table.pop("name", None), choices(key), path or key
    if not isinstance(name, str) or ":" in name:
        return
    if name not in known:
        raise BadInput(f"{path} = {name!r}: is not known; {validation.suggest(name, known)}")
    if cls := declared(known[name]):
        validation.to_dataclass(cls, table, path)
