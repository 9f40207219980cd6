"""What the shell completes: names of datasets, algorithms, studies and settings, and values.

`fedadb --install-completion` installs it. Nothing here imports torch.
"""

import os
import re
from collections.abc import Iterable

# Variables of the environment: how the shell's script asks, and the KEY of the current KEY=VALUE.
COMPLETE, KEY = "_FEDADB_COMPLETE", "_FEDADB_COMPLETE_KEY"


def topics() -> list[str]:
    """What `fedadb explain` explains: settings, tables, and the names of algorithms, filters, …."""
    from fedadb.experiment.declarations import CHOSEN, TABLES, choices, setting_keys

    tables = [table for table in TABLES if table]
    names = [name for key in CHOSEN for name in choices(key)]
    return list(dict.fromkeys([*setting_keys(), *tables, *names]))


def complete_topic(incomplete: str) -> list[str]:
    return matching(incomplete, topics())


def complete_dataset(incomplete: str) -> list[str]:
    from fedadb.experiment.declarations import dataset_names

    return matching(incomplete, dataset_names())


def complete_algorithms(incomplete: str) -> list[str]:
    """The last of several names that are separated by commas."""
    from fedadb.experiment.declarations import choices

    before, comma, last = incomplete.rpartition(",")
    given = before.split(",")
    others = [name for name in choices("algorithm") if name not in given]
    return [f"{before}{comma}{name}" for name in matching(last, others)]


def complete_setting(incomplete: str) -> list[str]:
    """KEY=, or after it the values that the setting can have."""
    from fedadb.experiment.declarations import setting_keys

    if key := os.environ.get(KEY):
        return matching(incomplete, _values(key))
    key, equals, value = incomplete.partition("=")
    if not equals:
        return [f"{name}=" for name in matching(incomplete, setting_keys())]
    return [f"{key}={one}" for one in matching(value, _values(key))]


def _values(key: str) -> list[str]:
    """The words that a setting can have as a value."""
    from fedadb.experiment.declarations import CHOSEN, choices, dataset_names
    from fedadb.experiment.meanings import all_settings

    if key == "dataset":
        return dataset_names()
    if key.removesuffix(".name") in CHOSEN:
        return list(choices(key.removesuffix(".name")))
    allowed = " ".join(setting.values for setting in all_settings() if setting.key == key)
    quoted = re.findall(r'"([^"]+)"', allowed)
    plain = re.findall(r"\b(true|false|none)\b", allowed)
    return list(dict.fromkeys([*quoted, *plain]))


def matching(start: str, names: Iterable[str]) -> list[str]:
    """The names that begin like this."""
    return [name for name in names if name.startswith(start)]


def join_split_words() -> None:
    """Undo that bash splits `--set KEY=VALUE` at the equals sign.

    The shell's script passes the words of the line, one per line, and the number of the current
    one. Of the current word bash replaces only what is behind the sign, so KEY is passed apart.
    """
    if os.environ.get(COMPLETE) != "complete_bash":
        return
    words = os.environ["COMP_WORDS"].split("\n")[: int(os.environ["COMP_CWORD"]) + 1]
    joined: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        if joined and "=" in (before, word):
            joined[-1] += word
        else:
            joined.append(word)
    if "=" in words[-2:]:
        os.environ[KEY], _, joined[-1] = joined[-1].partition("=")
    os.environ["COMP_WORDS"] = "\n".join(joined)
    os.environ["COMP_CWORD"] = str(len(joined) - 1)
