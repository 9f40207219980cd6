"""One federation, from an experiment to a directory of results."""

import json
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch

from fedadb.core.algorithm import HasWeights, Round
from fedadb.core.errors import BadInput, Fault
from fedadb.core.files import (
    CHECKPOINT,
    ENVIRONMENT,
    EXPERIMENT,
    MEMORIES,
    MODEL,
    PARTITION,
    ROUNDS,
    owned,
    write_whole,
)
from fedadb.core.packing import pack, size
from fedadb.core.stream import Stream
from fedadb.core.track import Track, unseen
from fedadb.engine import checkpoint, record
from fedadb.engine.evaluate import Exam, Scores, in_and_out
from fedadb.engine.federate import Snapshot, federate
from fedadb.engine.local import Learner
from fedadb.engine.memories import Memories
from fedadb.engine.record import Record
from fedadb.engine.tensorfile import read_tensors, write_tensors
from fedadb.experiment.build import World, build, sample
from fedadb.experiment.config import Experiment
from fedadb.experiment.crew import Crew, Work, crew, ground
from fedadb.experiment.directory import default_directory, require_own
from fedadb.experiment.environment import note_environment


class History(NamedTuple):
    """What a run recorded, and where."""

    directory: Path
    rounds: list[Record]

    @property
    def accuracy(self) -> list[float]:
        return [r["accuracy"] for r in self.rounds]


class Run(NamedTuple):
    """A run's directory while this process owns it."""

    directory: Path
    done: list[Record]  # the rounds that an earlier process has done
    rounds: Iterator[Record]  # the others, as they are done


def run(experiment: Experiment, out: str | Path | None = None) -> History:
    """Train the federation, or go on where an earlier call stopped."""
    with begin(experiment, Path(out) if out else default_directory(experiment)) as begun:
        return History(begun.directory, [*begun.done, *begun.rounds])


@contextmanager
def begin(
    experiment: Experiment,
    out: Path,
    track: Track = unseen,
    make: Callable[[Experiment, Track], World] | None = None,
    crew: Crew = crew,
) -> Iterator[Run]:
    """Take hold of a directory, new or with this experiment in it.

    Nothing is written before everything that can be wrong with the experiment has been checked.
    Where the data are not here, `make` and `crew` are those of a real federation.
    """
    require_own(out, experiment)
    if (out / MODEL).exists():
        yield Run(out, _finished(experiment, out), iter(()))
        return
    world = (make or build)(experiment, track)
    with ground(experiment), one_thread():
        out.mkdir(parents=True, exist_ok=True)
        with owned(out):
            require_own(out, experiment)  # another process may have been here in the meantime
            start, memories = _start(experiment, world, out)
            write_whole(out / EXPERIMENT, experiment.toml().encode())
            held = {"classes": world.classes, "counts": world.counts, "domains": world.domains}
            write_whole(out / PARTITION, json.dumps(held).encode())
            note_environment(out / ENVIRONMENT, start.round.t, world.test.x.device)
            done = record.keep(out / ROUNDS, start.round.t)
            with closing(_train(experiment, world, out, start, memories, crew)) as rounds:
                yield Run(out, done, rounds)


def _finished(experiment: Experiment, out: Path) -> list[Record]:
    """The records of a run that has ended, if it is whole."""
    read_tensors(out / MODEL, "delete it, and the same command makes it anew")
    records = record.read(out / ROUNDS)
    if len(records) != experiment.rounds:
        raise Fault(
            f"{out / ROUNDS} has {len(records)} of {experiment.rounds} rounds though the run has "
            "ended; choose another --out"
        )
    return records


def _start(
    experiment: Experiment, world: World, out: Path
) -> tuple[Snapshot[HasWeights], Memories[Any]]:
    """Where the run stands, and what its clients remember."""
    algorithm, w = experiment.algorithm, world.f.weights()
    if (out / CHECKPOINT).exists():
        start, versions = checkpoint.load(out / CHECKPOINT, algorithm, w, world.digest)
    else:
        before = Round(
            t=0,
            total=experiment.rounds,
            clients=experiment.federation.clients,
            examples=world.examples,
            lr_decay=experiment.local.lr_decay,
        )
        start, versions = Snapshot(before, algorithm.init(w)), {}
    return start, Memories(out / MEMORIES, algorithm.memory(w), w, versions)


def _train(
    experiment: Experiment,
    world: World,
    out: Path,
    start: Snapshot[HasWeights],
    memories: Memories[Any],
    crew: Crew,
) -> Generator[Record]:
    """The rounds to come, each recorded and saved as soon as its model is evaluated."""
    algorithm, f = experiment.algorithm, world.f
    rng = Stream(experiment.seed)
    batch_size = experiment.local.batch_size
    exam = Exam(f, world.test, world.transform, batch_size, world.test_domain)
    learner = Learner(algorithm, f, experiment.local)
    now, began = start, time.perf_counter()
    # What black and white are for each channel: to see anchors as pictures.
    box = {side: json.dumps(getattr(f.domain, side).flatten().tolist()) for side in ("low", "high")}

    def finish(done: Snapshot[HasWeights], versions: dict[int, int], scores: Scores) -> Record:
        nonlocal began
        seconds, began = time.perf_counter() - began, time.perf_counter()
        if algorithm.keeps(done.round):
            write_tensors(out / f"sent-{done.round.t:04}.safetensors", pack(done.sent), box)
        # Before the checkpoint: a round that was recorded but not saved is done again, to the same
        # end.
        line = _line(experiment, done, scores, seconds)
        if experiment.record_clients:
            line |= _clients(exam, done, world)
            began = time.perf_counter()  # what was only asked for to look at is no round's time
        line = record.append(out / ROUNDS, line)
        checkpoint.save(out / CHECKPOINT, done, versions, world.digest)
        memories.prune(versions)
        return line

    work = Work(experiment, learner, world.shards, rng, exam, memories)
    with crew(work) as (cohort, examiner):
        waiting: tuple[Snapshot[HasWeights], dict[int, int]] | None = None
        rounds = federate(
            algorithm,
            f,
            cohort,
            choose=lambda t: sample(experiment.federation, experiment.seed, t),
            rng=rng,
            start=start,
        )
        try:
            for now in rounds:
                scores = examiner.scores() if waiting else None
                examiner.begin(algorithm.deployed(now.server))
                if waiting and scores:  # written down while the next evaluation goes on
                    yield finish(*waiting, scores)
                versions = dict(memories.versions)
                if examiner.overlaps:
                    waiting = now, versions
                else:
                    yield finish(now, versions, examiner.scores())
        except (BadInput, Fault):  # of the round after the one that waits, which is good
            if waiting:
                with suppress(Fault):
                    finish(*waiting, examiner.scores())
            raise
        if waiting:
            yield finish(*waiting, examiner.scores())
    about = {"experiment": experiment.toml(), "classes": json.dumps(world.classes)}
    weights = pack(algorithm.deployed(now.server)) | f.constants()
    write_tensors(out / MODEL, weights, about)


def _line(
    experiment: Experiment, done: Snapshot[HasWeights], scores: Scores, seconds: float
) -> Record:
    timed = experiment.algorithm.timed
    known = {
        "round": done.round.t,
        **{key: value for key, value in scores._asdict().items() if value != ()},
        "clients": done.clients,
        **({"lost": dict(done.lost)} if done.lost else {}),
        "bytes_down": size(done.sent),
        "bytes_up": fmean(size(reply) for reply in done.replies),
        "lr": experiment.local.lr_at(done.round.t),
        "seconds": seconds,
        **({timed: done.broadcast_seconds} if timed else {}),
    }
    measured = record.mean([{k: float(v) for k, v in r.measured.items()} for r in done.replies])
    return {**known, **{k: v for k, v in measured.items() if k not in known}}  # known goes first


def _clients(exam: Exam, done: Snapshot[HasWeights], world: World) -> Record:
    """What the clients' own models know before they are averaged, weighted by their rows."""
    rows = [int(reply.examples) for reply in done.replies]
    known = []
    for k, reply in zip(done.clients, done.replies, strict=True):
        batches = (exam.batch(reply.w, i) for i in range(len(exam)))
        known.append(in_and_out(exam.scores(batches).class_accuracy, world.counts[k]))
    own, rest = (
        sum(n * value for n, value in zip(rows, values, strict=True)) / sum(rows)
        for values in zip(*known, strict=True)
    )
    return {"in_local": own, "out_local": rest}


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums in one order, so that the same experiment gives the same bits on any number of cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def done_rounds(out: Path) -> int:
    """How many rounds of a run are done, whoever may be at work on it."""
    return len(record.read(out / ROUNDS))
