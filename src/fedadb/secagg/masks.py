"""Masks: each pair of sites adds and subtracts the same random words, which the sum then lacks."""

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from fedadb.secagg.fixed_point import BITS, Words
from fedadb.secagg.keys import KEY_BYTES, canonical, in_order

ROUND, MASK = b"fedadb secagg 1 round\0", b"mask\0"
CHUNK = 1 << 18  # words of a mask that are in memory at a time
TRAIN, EVALUATE, ROWS = "train", "evaluate", "rows"  # what is summed


class Exchange(NamedTuple):
    """What masks are for; sites whose exchanges differ in anything have masks that do not cancel.

    A mask must never cover two different vectors. So a site answers an exchange once, and after
    that with the same words.
    """

    run: str
    sites: tuple[str, ...]  # all of the run
    t: int  # the round; 0 if it is none
    attempt: int  # raised if the words of an earlier one cannot be used
    sent: str  # the digest of what the server sent
    scale: int
    words: int
    kind: str = TRAIN

    @property
    def digest(self) -> bytes:
        """H: by it, masks are bound to all of this."""
        table = {
            "attempt": self.attempt,
            "bits": BITS,
            "run": self.run,
            "scale": self.scale,
            "sent": self.sent,
            "sites": in_order(self.sites),
            "t": self.t,
            "words": self.words,
        }
        if self.kind != TRAIN:
            table["kind"] = self.kind
        return hashlib.sha256(ROUND + canonical(table)).digest()


def mask(words: Words, name: str, pair_keys: Mapping[str, bytes], exchange: Exchange) -> Words:
    """The words as the site of that name sends them.

    It adds the mask that it shares with a site after it, and subtracts that of a site before it.
    """
    if len(words) != exchange.words or {name, *pair_keys} != set(exchange.sites):
        raise ValueError("the words or the keys are not those of the exchange")
    digest, masked = exchange.digest, words.copy()
    for other, key in pair_keys.items():
        add = in_order([name, other])[0] == name
        stream = _stream(_mask_key(key, digest))
        for i in range(0, len(masked), CHUNK):
            part = masked[i : i + CHUNK]
            pad = np.frombuffer(stream.update(bytes(part.nbytes)), dtype=np.dtype("<u4"))
            if add:
                part += pad
            else:
                part -= pad
    return masked


def _mask_key(pair_key: bytes, digest: bytes) -> bytes:
    """R: a key for this pair and this exchange alone."""
    return HKDFExpand(hashes.SHA256(), KEY_BYTES, MASK + digest).derive(pair_key)


def _stream(key: bytes) -> CipherContext:
    """The key stream of ChaCha20 under a key that is used once, so a nonce of zeros is right."""
    return Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
