"""Clients of a sum in this process: replies, keys and masked words."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch

from fedadb.core.replies import Reply
from fedadb.core.vector import Vector, Weights
from fedadb.secagg.fixed_point import Coding, Words
from fedadb.secagg.keys import make_private_key, pair_keys, public_key
from fedadb.secagg.masks import Exchange, mask
from fedadb.secagg.reply_words import reply_words, word_count

RUN = "0123456789abcdef"


def make_replies(
    clients: int, numbers: int = 1000, largest: float = 1.0, measured: Any = None
) -> tuple[Vector, list[Reply[Any]]]:
    """The weights that clients received, and replies whose updates fill the range."""
    rng = np.random.default_rng(clients)
    u = Vector.of({"weight": torch.from_numpy(rng.normal(size=numbers).astype(np.float32))})
    replies: list[Reply[Any]] = []
    for _ in range(clients):
        delta = torch.from_numpy(rng.uniform(-largest, largest, numbers) * 0.99)
        w = Vector((u.flat.double() + delta).float(), u.layout)
        rows = torch.tensor(int(rng.integers(20, 5000)))
        replies.append(Reply(Weights(w), rows, measured or {}))
    return u, replies


@dataclass
class Clients:
    """Clients that mask their words for each other."""

    names: Sequence[str]
    run: str = RUN
    private: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.private = {name: make_private_key() for name in self.names}

    @cached_property
    def pairs(self) -> dict[str, dict[str, bytes]]:
        public = {name: public_key(key) for name, key in self.private.items()}
        return {name: pair_keys(self.run, name, self.private[name], public) for name in self.names}

    def exchange(self, words: int, scale: int = 16, **changes: Any) -> Exchange:
        exchange = Exchange(self.run, tuple(self.names), 1, 0, "00" * 32, scale, words)
        return exchange._replace(**changes)

    def masked(self, name: str, words: Words, exchange: Exchange) -> Words:
        return mask(words, name, self.pairs[name], exchange)


def masked_sum(
    u: Vector, replies: Sequence[Reply[Any]], coding: Coding, measures: Sequence[str] = ()
) -> Words:
    """The sum of the replies' masked words."""
    clients = Clients([f"site-{k}" for k in range(len(replies))])
    exchange = clients.exchange(word_count(u, measures), coding.scale)
    total = np.zeros(exchange.words, dtype=np.uint32)
    for name, reply in zip(clients.names, replies, strict=True):
        total += clients.masked(name, reply_words(reply, u, coding, measures), exchange)
    return total


def coding_of(replies: Sequence[Reply[Any]], largest: float = 1.0, uniform: bool = False) -> Coding:
    return Coding(len(replies), sum(int(r.examples) for r in replies), largest, uniform)


def exact_mean(u: Vector, replies: Sequence[Reply[Any]], coding: Coding) -> torch.Tensor:
    """Σ n_k Δ_k / Σ n_k in float64."""
    total = torch.zeros(u.flat.numel(), dtype=torch.float64)
    for reply in replies:
        delta = reply.w.flat.double() - u.flat.double()
        total += coding.weight(int(reply.examples)) * delta
    return total / coding.total
