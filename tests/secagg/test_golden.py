"""The words of a sum over three sites with fixed keys.

They were computed twice: with the package `cryptography`, and with X25519, HKDF and ChaCha20 in
plain Python. Hexadecimal words are values, not bytes.
"""

import hashlib

import numpy as np
import pytest
import torch

from fedadb.core.replies import Reply
from fedadb.core.vector import Vector, Weights
from fedadb.secagg import keys, masks
from fedadb.secagg.fixed_point import Coding, Words, to_numbers
from fedadb.secagg.masks import Exchange, mask
from fedadb.secagg.reply_words import mean_reply, reply_words

RUN = "000102030405060708090a0b0c0d0e0f"
PRIVATE = {"a": b"\x11" * 32, "b": b"\x22" * 32, "c": b"\x33" * 32}
PUBLIC = {
    "a": "7b4e909bbe7ffe44c465a220037d608ee35897d31ef972f07f74892cb0f73f13",
    "b": "0faa684ed28867b97f4a6a2dee5df8ce974e76b7018e3f22a1c4cf2678570f20",
    "c": "7b0d47d93427f8311160781c7c733fd89f88970aef490d8aa0ee19a4cb8a1b14",
}
ROSTER = "399a7367b221a4cb4c38320aa318e396bb1b84551aa4dd59a7d1823fe3469b37"
PAIRS = {
    "ab": "02446ef0a3f9e1568dec04f0a97f585dccf13bc29443f2f39461fbcfea0818eb",
    "ac": "523f0e50036525ff853455995a134d6d8c379a4f62d5cf9842a48348b8f1e63b",
    "bc": "8f0dbd63257dd8db0e1737a0fc360bdec59c3aa4e165dd145ead7863db6fd7ed",
}
SENT = hashlib.sha256(b"toy").hexdigest()
EXCHANGE = Exchange(RUN, ("a", "b", "c"), t=1, attempt=0, sent=SENT, scale=16, words=4)
DIGEST = "d769f4541a37c2028b1aeee1b2756d27ce8145ea6dcd8b854225da2993b58493"
MASK_KEYS = {
    "ab": "0df15379177af9ab1ec5e5373685051d6d52ad4bae96879412287b1817c12aff",
    "ac": "40f11f01bf1f52475558634d7361d79dc0783cb4af46fadf4b29e5c5ea4f53a4",
    "bc": "cba2d04d44be890489a1d3e5d62d8cf982d542eb30cf4920261c5025f1c34cd9",
}
PADS = {
    "ab": "b7cd333f 2b0e8a26 445a49dd 8298a418",
    "ac": "8caa9fca 4d309350 9d8583bd 532e17ca",
    "bc": "b052e452 4ea67fcf 81f67e17 7818035c",
}
ROWS = {"a": 2, "b": 3, "c": 5}
UPDATES = {"a": (0.5, -0.25, 0.125), "b": (-1.0, 0.75, 0.1), "c": (0.3, -0.6, 0.0)}
PLAIN = {
    "a": "00010000 ffff8000 00004000 00000002",
    "b": "fffd0000 00024000 00004ccd 00000003",
    "c": "00018000 fffd0000 00000000 00000005",
}
MASKED = {
    "a": "4478d309 783e9d76 e1e00d9a d5c6bbe4",
    "b": "f882b113 239a35a9 3d9c8107 f57f5f47",
    "c": "c303fbe4 6425ece1 e083fe2c 34b9e4df",
}
SUM = "ffff8000 fffec000 00008ccd 0000000a"


class ToyCoding(Coding):
    """The scale of the numbers above, which our own rule would not choose for ten rows."""

    @property
    def scale(self) -> int:
        return 16


CODING = ToyCoding(clients=3, rows=10, largest=1.0)


def words(text: str) -> Words:
    return np.array([int(word, 16) for word in text.split()], dtype=np.uint32)


def vector(numbers: tuple[float, ...]) -> Vector:
    return Vector.of({"weight": torch.tensor(numbers, dtype=torch.float64)})


def pair_keys(name: str) -> dict[str, bytes]:
    public = {other: bytes.fromhex(key) for other, key in PUBLIC.items()}
    return keys.pair_keys(RUN, name, PRIVATE[name], public)


def test_keys() -> None:
    public = {name: keys.public_key(private) for name, private in PRIVATE.items()}
    assert {name: key.hex() for name, key in public.items()} == PUBLIC
    assert keys.roster_digest(RUN, public).hex() == ROSTER
    assert {other: key.hex() for other, key in pair_keys("a").items()} == {
        "b": PAIRS["ab"],
        "c": PAIRS["ac"],
    }
    assert pair_keys("b") == {o: bytes.fromhex(PAIRS[p]) for o, p in (("a", "ab"), ("c", "bc"))}


def test_the_digest_of_an_exchange() -> None:
    assert EXCHANGE.digest.hex() == DIGEST
    assert EXCHANGE._replace(sites=("c", "a", "b")).digest.hex() == DIGEST


@pytest.mark.parametrize("pair", PADS)
def test_pads(pair: str) -> None:
    key = masks._mask_key(bytes.fromhex(PAIRS[pair]), bytes.fromhex(DIGEST))
    assert key.hex() == MASK_KEYS[pair]
    pad = np.frombuffer(masks._stream(key).update(bytes(16)), dtype=np.dtype("<u4"))
    assert list(pad) == list(words(PADS[pair]))


def test_the_stream_is_that_of_the_published_test_vector() -> None:
    assert masks._stream(bytes(32)).update(bytes(16)).hex() == "76b8e0ada0f13d90405d6ae55386bd28"


@pytest.mark.parametrize("name", PRIVATE)
def test_masked_words(name: str) -> None:
    u = vector((0.0, 0.0, 0.0))
    reply = Reply(Weights(vector(UPDATES[name])), torch.tensor(ROWS[name]))
    plain = reply_words(reply, u, CODING, ())
    assert list(plain) == list(words(PLAIN[name]))
    assert list(mask(plain, name, pair_keys(name), EXCHANGE)) == list(words(MASKED[name]))


def test_the_sum() -> None:
    total = sum((words(text) for text in MASKED.values()), start=words("0 0 0 0"))
    assert list(total) == list(words(SUM))
    assert list(to_numbers(total, 0)) == [-32768, -81920, 36045, 10]
    mean = mean_reply(total, vector((0.0, 0.0, 0.0)), CODING, ())
    assert mean.w.flat.tolist() == pytest.approx([-0.05, -0.125, 0.05500031], abs=1e-8)
    error = abs(float(mean.w.flat[2]) - 0.055)
    assert error == pytest.approx(3.1e-7, abs=1e-8)
    assert error <= 3 * 2.0**-17 / 10  # m 2^−(s+1) / N = 2.3e-6
