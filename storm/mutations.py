"""Inputs for readers: valid ones, changed a little, with a preference for what breaks parsers."""

import random
import re
from collections.abc import Callable, Sequence

NUMBERS = (
    b"0", b"-1", b"1e400", b"-1e400", b"NaN", b"nan", b"inf", b"9" * 400, b"9" * 5000, b"1e-320",
    b"2147483648", b"9223372036854775808", b"18446744073709551616", b"0.5", b"-0.0", b"1_000",
    b"0x10", b"true", b"null", b"1e6", b"1000000000000",
)  # fmt: skip
WORDS = (
    b'""', b'"x"', b"[]", b"{}", b"[[]]", b'{"a": 1}', b"[1, 2", b"null", b'"\\ud800"', b'"."',
    b'"\\u0000"', b'"../../x"', b'"/etc/passwd"', b'"a/b"', b'"\\u202e"', b'"\\u001b[2J"',
    b'"' + b"x" * 3000 + b'"', b'"' + "é".encode() * 9 + b'"', b"\xff\xfe", b"\xed\xa0\x80",
    b"\x00", b"\r\n", b"\n\n", b",", b";", b"#", b"=", b"-", b"'", b'"""', b"a.b.c = 1\n",
    b"[" * 3000, b'{"a":' * 1500,
)  # fmt: skip
TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|[A-Za-z_]+')
LARGEST = 1 << 16  # bytes of an input

Mutation = Callable[[bytes, random.Random], bytes]


def mutated(seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """One of the seeds after one to five changes."""
    data = rng.choice(seeds)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
        data = rng.choice(MUTATIONS)(data, rng)
        if rng.random() < 0.1:
            data = _splice(data, rng.choice(seeds), rng)
    return data[:LARGEST]


def _flip(data: bytes, rng: random.Random) -> bytes:
    if not data:
        return b"\x00"
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def _set_bytes(data: bytes, rng: random.Random) -> bytes:
    at, n = rng.randrange(len(data) + 1), rng.choice((1, 2, 4, 8))
    value = rng.choice((b"\x00", b"\xff", b"\x7f", b"\x80", bytes([rng.randrange(256)])))
    return data[:at] + value * n + data[at + n :]


def _delete(data: bytes, rng: random.Random) -> bytes:
    at, n = rng.randrange(len(data) + 1), rng.choice((1, 2, 5, 20, 200))
    return data[:at] + data[at + n :]


def _truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _insert(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice(rng.choice((NUMBERS, WORDS))) + data[at:]


def _repeat(data: bytes, rng: random.Random) -> bytes:
    at, n = rng.randrange(len(data) + 1), rng.choice((1, 5, 20, 100))
    return data[:at] + data[at : at + n] * rng.choice((2, 2, 3, 20)) + data[at + n :]


def _replace_token(data: bytes, rng: random.Random) -> bytes:
    """Replace a number, a text or a word by something that does not belong there."""
    tokens = list(TOKEN.finditer(data))
    if not tokens:
        return _insert(data, rng)
    token = rng.choice(tokens)
    others: Sequence[bytes] = rng.choice(
        (NUMBERS, WORDS, [t.group() for t in rng.choices(tokens, k=3)])
    )
    return data[: token.start()] + rng.choice(others) + data[token.end() :]


def _remove_line(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    del lines[rng.randrange(len(lines))]
    return b"\n".join(lines)


def _splice(data: bytes, other: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


MUTATIONS: tuple[Mutation, ...] = (
    _flip, _set_bytes, _delete, _truncate, _insert, _repeat, _replace_token, _replace_token,
    _replace_token, _remove_line,
)  # fmt: skip


def shrunk(data: bytes, fails: Callable[[bytes], bool], tries: int = 2000) -> bytes:
    """A shorter input that still fails: parts are left out as long as it does."""
    size = max(1, len(data) // 2)
    while size and tries > 0:
        at = 0
        while at < len(data) and tries > 0:
            tries -= 1
            shorter = data[:at] + data[at + size :]
            if fails(shorter):
                data = shorter
            else:
                at += size
        size //= 2
    return data
