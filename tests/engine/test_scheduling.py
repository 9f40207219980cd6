"""Clients are trained on workers: the largest first, and again if a worker is lost."""

from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from fedadb.core.algorithm import Round
from fedadb.core.data import Shard
from fedadb.core.errors import BadInput, Fault
from fedadb.core.packing import kind_of
from fedadb.core.replies import Reply
from fedadb.core.vector import Layout, Vector, Weights
from fedadb.engine.scheduling import (
    RemoteError,
    ResultKind,
    WorkerLost,
    pack_result,
    train_on_workers,
    unpack_result,
)
from tests.conftest import toy_model, toy_shard
from tests.engine.test_federate import Tally

ROUND = Round(4, 9, 5, 60)
W = toy_model().weights()
KIND = ResultKind(Reply[Weights], Tally, W.layout, window=100)


def shards(*sizes: int) -> list[Shard]:
    whole = toy_shard(rows=max(sizes))
    return [Shard(whole.examples, torch.arange(n), 3, whole.transform) for n in sizes]


@dataclass
class ScriptedWorkers:
    """Workers that answer in the order given; each answer may be prepared."""

    count: int
    answers: dict[int, list[RemoteError | WorkerLost]] = field(default_factory=dict)
    log: list[int] = field(default_factory=list)
    busy: list[tuple[int, dict[str, Tensor] | None]] = field(default_factory=list)

    def has_free(self) -> bool:
        return len(self.busy) < self.count

    def assign(self, k: int, memory: dict[str, Tensor] | None, round: Round) -> None:
        assert self.has_free()
        assert round == ROUND
        self.log.append(k)
        self.busy.append((k, memory))

    def results(self) -> list[tuple[int, dict[str, Tensor] | RemoteError | WorkerLost]]:
        k, memory = self.busy.pop()  # the last comes back first: order must not matter
        if prepared := self.answers.get(k):
            return [(k, prepared.pop(0))]
        seen = 0 if memory is None else int(memory["rounds"])
        return [
            (k, pack_result(Reply(Weights(k * W), torch.tensor(k)), Tally(torch.tensor(seen + 1))))
        ]


def train(
    workers: ScriptedWorkers,
    clients: list[int],
    memories: dict[int, Tally] | None = None,
    kind: ResultKind = KIND,
) -> list[Reply]:
    held = {} if memories is None else memories
    sizes = shards(10, 40, 20, 5, 30)
    return list(train_on_workers(workers, clients, ROUND, sizes, held, kind))


def test_clients_with_the_most_rows_start_first_and_replies_keep_the_order() -> None:
    workers = ScriptedWorkers(2)
    memories = {2: Tally(torch.tensor(7))}
    replies = train(workers, [3, 0, 2, 1, 4], memories)
    assert workers.log == [1, 4, 2, 0, 3]
    assert [int(reply.examples) for reply in replies] == [3, 0, 2, 1, 4]
    assert {k: int(m.rounds) for k, m in memories.items()} == {2: 8, 0: 1, 1: 1, 3: 1, 4: 1}


def test_a_client_whose_worker_is_lost_is_trained_again() -> None:
    workers = ScriptedWorkers(1, {1: [WorkerLost("killed"), WorkerLost("killed")]})
    replies = train(workers, [0, 1])
    assert [int(reply.examples) for reply in replies] == [0, 1]
    assert workers.log == [1, 1, 1, 0]


def test_a_client_that_loses_three_workers_is_named() -> None:
    workers = ScriptedWorkers(2, {1: [WorkerLost("killed by signal 9")] * 3})
    with pytest.raises(Fault, match=r"client 1 in round 4: 3 workers ended .* signal 9"):
        train(workers, [0, 1])


@pytest.mark.parametrize("kind", [BadInput, Fault, ZeroDivisionError])
def test_errors_keep_their_kind_and_their_sentence(kind: type[Exception]) -> None:
    try:
        raise kind("too bad")
    except Exception as error:
        remote = RemoteError.of(error)
    expected = kind if kind in (BadInput, Fault) else RuntimeError
    with pytest.raises(expected, match="too bad"):
        train(ScriptedWorkers(1, {0: [remote]}), [0])


def test_results_survive_packing() -> None:
    reply = Reply(Weights(2 * W), torch.tensor(5), {"tau": torch.tensor(0.5)})
    packed = pack_result(reply, Tally(torch.tensor(3)))
    again, memory = unpack_result(packed, KIND)
    assert torch.equal(again.w.flat, reply.w.flat)
    assert (int(again.examples), float(again.measured["tau"])) == (5, 0.5)
    assert int(memory.rounds) == 3
    _, nothing = unpack_result(pack_result(reply, ()), KIND._replace(memory=kind_of(())))
    assert nothing == ()


def test_no_client_starts_too_far_ahead_of_the_replies_that_were_read() -> None:
    """At most `window` clients are trained or wait, however many a round has."""
    workers = ScriptedWorkers(2)
    stream = train_on_workers(
        workers, [3, 0, 2, 1, 4], ROUND, shards(10, 40, 20, 5, 30), {}, KIND._replace(window=3)
    )
    started = [(int(reply.examples), sorted(workers.log)) for reply in stream]
    assert [k for k, _ in started] == [3, 0, 2, 1, 4]
    assert [len(log) for _, log in started] == [3, 4, 5, 5, 5]
    assert started[0][1] == [0, 2, 3]


def test_large_replies_have_a_small_window() -> None:
    small = ResultKind.of(Reply(Weights(W), torch.tensor(1)), (), W.layout, workers=2)
    layout = Layout(("w",), ((11_000_000,),))
    large = Weights(Vector(torch.zeros(11_000_000), layout))
    assert small.window > 50_000
    assert ResultKind.of(Reply(large, torch.tensor(1)), (), W.layout, workers=2).window == 4
    assert ResultKind.of(Reply(large, torch.tensor(1)), (), W.layout, workers=8).window == 16
