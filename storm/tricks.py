"""What a hostile site can send in place of its reply to a round."""

import random
from collections.abc import Callable

import torch
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from torch import Tensor

from fedadb.deploy.client_app import app
from fedadb.deploy.messages import bytes_record, make_content, tensors_in, tensors_to_bytes
from storm.mutations import mutated
from tests.deploy.fake_grid import Withheld

NESTED = "[" * 100_000 + "]" * 100_000
TEXTS = ("\x1b[2J", "\u202e" * 50, "x" * 100_000, "", "fedadb:no-data: \x00", "\ud800")

Tensors = dict[str, Tensor]
Change = Callable[[Tensors, random.Random], Tensors]
Trick = Callable[[Message, Context, random.Random], Message]


def _first(tensors: Tensors, rng: random.Random) -> str:
    return rng.choice([name for name in tensors if name.startswith("upload/w/")])


def _with(change: Callable[[Tensor, random.Random], Tensor]) -> Change:
    """Changes one tensor of the weights."""

    def changed(tensors: Tensors, rng: random.Random) -> Tensors:
        name = _first(tensors, rng)
        return {**tensors, name: change(tensors[name], rng)}

    return changed


def _all(factor: float) -> Change:
    return lambda tensors, rng: {
        name: t * factor if name.startswith("upload/w/") else t for name, t in tensors.items()
    }


def _renamed(tensors: Tensors, rng: random.Random) -> Tensors:
    name = _first(tensors, rng)
    return {f"{key}\x1b[2J" if key == name else key: t for key, t in tensors.items()}


def _rows(tensors: Tensors, rng: random.Random) -> Tensors:
    return {**tensors, "examples": torch.tensor(rng.choice([-1, 0, 10**12, 2**62]))}


def _one_number(tensor: Tensor, value: float) -> Tensor:
    changed = tensor.clone()
    changed.view(-1)[0] = value
    return changed


CHANGES: dict[str, Change] = {
    "nan": _with(lambda t, rng: _one_number(t, torch.nan)),
    "infinite": _with(lambda t, rng: _one_number(t, torch.inf)),
    "huge": _all(1e30),
    "largest float": _with(lambda t, rng: _one_number(t, -3e38)),
    "other shape": _with(lambda t, rng: torch.zeros(rng.choice([(), (1,), (3, 3), (0, 5)]))),
    "other type": _with(lambda t, rng: t.to(rng.choice([torch.float64, torch.int8, torch.bool]))),
    "other names": _renamed,
    "wrong rows": _rows,
    "part missing": lambda tensors, rng: dict(list(tensors.items())[1:]),
    "part too many": lambda tensors, rng: {**tensors, "upload/w/more": torch.zeros(9)},
    "nothing": lambda tensors, rng: {},
}


def _changing(change: Change) -> Trick:
    def trick(message: Message, context: Context, rng: random.Random) -> Message:
        tensors = change(tensors_in(app(message, context).content), rng)
        record = bytes_record(tensors_to_bytes(tensors))
        return Message(make_content({}, record), reply_to=message)

    return trick


def _bytes(make: Callable[[Message, Context, random.Random], bytes]) -> Trick:
    return lambda message, context, rng: Message(
        make_content({}, bytes_record(make(message, context, rng))), reply_to=message
    )


def _changed_bytes(message: Message, context: Context, rng: random.Random) -> bytes:
    """The bytes of an honest reply, changed in a few places; the result may be valid."""
    honest = tensors_to_bytes(tensors_in(app(message, context).content))
    cut = rng.choice((len(honest), 4000))
    return mutated([honest[:cut]], rng) + honest[cut:]


def _table(message: Message, context: Context, rng: random.Random) -> Message:
    text = rng.choice([NESTED, "NaN", "9" * 5000, " " * 2**21, '{"a": ' + NESTED + "}"])
    records = RecordDict({"table": ConfigRecord({"json": text})})
    return Message(records, reply_to=message)


def _raising(error: type[Exception]) -> Trick:
    def trick(message: Message, context: Context, rng: random.Random) -> Message:
        raise error(rng.choice(TEXTS))

    return trick


TRICKS: dict[str, Trick] = {
    **{name: _changing(change) for name, change in CHANGES.items()},
    "changed bytes": _bytes(_changed_bytes),
    "any bytes": _bytes(lambda message, context, rng: rng.randbytes(rng.randrange(500))),
    "endless header": _bytes(lambda m, c, rng: (2**62).to_bytes(8, "little") + b"{}"),
    "nested header": _bytes(lambda m, c, rng: len(NESTED).to_bytes(8, "little") + NESTED.encode()),
    "empty message": lambda message, context, rng: Message(RecordDict(), reply_to=message),
    "extreme table": _table,
    "error with any text": lambda message, context, rng: Message(
        Error(rng.randrange(100), rng.choice(TEXTS)), reply_to=message
    ),
    "exception": _raising(RuntimeError),
    "silence": _raising(TimeoutError),
    "half of a reply": _raising(Withheld),
    "disconnects": _raising(ConnectionError),
}
