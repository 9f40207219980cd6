"""A given partition, read from a file."""

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import AfterValidator

from fedadb.core.errors import BadInput
from fedadb.partition.protocol import Labels, Rows


def _absolute(path: str) -> str:
    """Absolute, so that the resolved experiment works from any directory."""
    return str(Path(path).expanduser().absolute())


@dataclass(frozen=True)
class File:
    """Reads the rows of each client from a file.

    The file is JSON, `{"client": [0, 5, …], …}`, or CSV with the columns `row` and `client`. Rows
    are numbers of training rows, from 0. A row that the file does not list is not used.

    ```python
    fedadb.Federation(clients=3, partition=fedadb.File("clients.json"))
    ```
    """

    # the file that says which client holds which rows: .csv for CSV, otherwise JSON
    path: Annotated[str, AfterValidator(_absolute)]

    def rows(self, labels: Labels, clients: int, rng: np.random.Generator) -> list[Rows]:
        by_client = self._read()
        if len(by_client) != clients:
            raise BadInput(
                f"{self.path} has {len(by_client)} clients, but federation.clients is {clients}; "
                f"set it to {len(by_client)}"
            )
        owner: dict[int, str] = {}
        for client, rows in by_client.items():
            if not rows:
                raise BadInput(f"{self.path}: client {client!r} has no rows")
            for row in rows:
                if not 0 <= row < len(labels.y):
                    raise BadInput(
                        f"{self.path}: client {client!r} has row {row}; the training rows are "
                        f"0 to {len(labels.y) - 1}"
                    )
                if row in owner:
                    raise BadInput(
                        f"{self.path}: row {row} occurs twice, for client {owner[row]!r} and for "
                        f"client {client!r}; a row belongs to one client"
                    )
                owner[row] = client
        return [np.array(rows, dtype=np.int64) for rows in by_client.values()]

    def _read(self) -> dict[str, list[int]]:
        path = Path(self.path)
        try:
            text = path.read_text(encoding="utf-8-sig")
            by_client = _parse_csv(text) if path.suffix.lower() == ".csv" else _parse_json(text)
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{path} cannot be read: {error}") from error
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{path} is not a partition: {error}") from error
        if not by_client:
            raise BadInput(f"{path} has no clients")
        return by_client


def _parse_json(text: str) -> dict[str, list[int]]:
    stored = json.loads(text, object_pairs_hook=_without_duplicates)
    if not isinstance(stored, dict):
        raise ValueError('it must be {"client": [row, …], …}')
    return {client: _check_rows(client, rows) for client, rows in stored.items()}


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    clients = [client for client, _ in pairs]
    if len(set(clients)) < len(clients):
        twice = next(client for client in clients if clients.count(client) > 1)
        raise ValueError(f"client {twice!r} occurs twice")
    return dict(pairs)


def _check_rows(client: str, rows: object) -> list[int]:
    if not isinstance(rows, list) or not all(type(row) is int for row in rows):
        raise ValueError(f"the rows of client {client!r} must be a list of whole numbers")
    return rows


def _parse_csv(text: str) -> dict[str, list[int]]:
    lines = text.splitlines()
    separator = ";" if lines and ";" in lines[0] else ","  # some spreadsheets write semicolons
    entries = csv.DictReader(lines, delimiter=separator, skipinitialspace=True)
    by_client: dict[str, list[int]] = {}
    for number, entry in enumerate(entries, start=2):
        client, row = entry.get("client"), entry.get("row") or ""
        if not client or not row.strip().isdecimal():
            raise ValueError(
                f"line {number} must have a whole number in column row and a name in column client"
            )
        by_client.setdefault(client, []).append(int(row))
    return by_client
