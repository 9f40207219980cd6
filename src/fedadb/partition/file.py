"""A partition that is known: who holds which rows stands in a file."""

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
    """So that the written experiment finds the file from anywhere."""
    return str(Path(path).expanduser().absolute())


@dataclass(frozen=True)
class File:
    """Rows by client, as JSON `{"client": [0, 5, …], …}`, or as CSV with columns row and client.

    Rows are numbers of training rows, from 0. Rows that nobody holds are not used.
    """

    path: Annotated[str, AfterValidator(_absolute)]

    def rows(self, labels: Labels, clients: int, rng: np.random.Generator) -> list[Rows]:
        held = self._read()
        if len(held) != clients:
            raise BadInput(
                f"{self.path} has {len(held)} clients, and federation.clients is {clients}; "
                f"set it to {len(held)}"
            )
        owner: dict[int, str] = {}
        for client, rows in held.items():
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
                        f"{self.path}: row {row} is there twice, with client {owner[row]!r} and "
                        f"client {client!r}; a row has one client"
                    )
                owner[row] = client
        return [np.array(rows, dtype=np.int64) for rows in held.values()]

    def _read(self) -> dict[str, list[int]]:
        path = Path(self.path)
        try:
            text = path.read_text(encoding="utf-8-sig")
            held = _from_csv(text) if path.suffix.lower() == ".csv" else _from_json(text)
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{path} cannot be read: {error}") from error
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{path} is not a partition: {error}") from error
        if not held:
            raise BadInput(f"{path} names no clients")
        return held


def _from_json(text: str) -> dict[str, list[int]]:
    stored = json.loads(text, object_pairs_hook=_once)
    if not isinstance(stored, dict):
        raise ValueError('it must be {"client": [row, …], …}')
    return {client: _numbers(client, rows) for client, rows in stored.items()}


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    clients = [client for client, _ in pairs]
    if len(set(clients)) < len(clients):
        twice = next(client for client in clients if clients.count(client) > 1)
        raise ValueError(f"client {twice!r} is there twice")
    return dict(pairs)


def _numbers(client: str, rows: object) -> list[int]:
    if not isinstance(rows, list) or not all(type(row) is int for row in rows):
        raise ValueError(f"the rows of client {client!r} must be a list of whole numbers")
    return rows


def _from_csv(text: str) -> dict[str, list[int]]:
    rows = text.splitlines()
    separator = ";" if rows and ";" in rows[0] else ","  # some spreadsheets write the former
    lines = csv.DictReader(rows, delimiter=separator, skipinitialspace=True)
    held: dict[str, list[int]] = {}
    for number, line in enumerate(lines, start=2):
        client, row = line.get("client"), line.get("row") or ""
        if not client or not row.strip().isdecimal():
            raise ValueError(
                f"line {number} must have a whole number in column row and a name in column client"
            )
        held.setdefault(client, []).append(int(row))
    return held
