"""One run: from an experiment to a directory of results."""

import json
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from torch import Tensor

from fedadb.core.algorithm import Round
from fedadb.core.errors import BadInput, Fault
from fedadb.core.packing import pack, size
from fedadb.core.stream import Stream
from fedadb.core.vector import HasWeights
from fedadb.engine.checkpoint import (
    earlier_memories,
    find_checkpoint,
    keep_earlier_checkpoint,
    load_checkpoint,
    remove_old_checkpoints,
    return_to_round,
    save_checkpoint,
)
from fedadb.engine.evaluate import Scores
from fedadb.engine.federate import Snapshot, federate, initial
from fedadb.engine.memories import Memories, ReadOnlyMemories
from fedadb.engine.pipeline import evaluated
from fedadb.engine.process import one_thread
from fedadb.experiment.backend import Backend, MakeBackend
from fedadb.experiment.build import make_learner
from fedadb.experiment.client_models import ClientModels, client_scores
from fedadb.experiment.config import Experiment
from fedadb.experiment.disclosure import markdown
from fedadb.experiment.environment import note_environment
from fedadb.experiment.identity import default_directory, require_same_run
from fedadb.experiment.observation import ObserverOrFunction, RunLog, as_observers, observed
from fedadb.experiment.personal import personal_record, write_accuracies
from fedadb.experiment.privacy import privacy_of
from fedadb.experiment.simulation import attackers, simulation
from fedadb.filters.mechanism import Mechanism
from fedadb.kernels.selection import kernels_of
from fedadb.progress import Progress, no_progress
from fedadb.storage.files import locked, write_atomically
from fedadb.storage.records import (
    Record,
    append_record,
    mean_measurements,
    privacy_statement,
    read_records,
    truncate_records,
)
from fedadb.storage.run_directory import (
    CHECKPOINT,
    DISCLOSURE,
    EARLIER_CHECKPOINTS,
    ENVIRONMENT,
    EXPERIMENT,
    MEMORIES,
    MODEL,
    PARTITION,
    ROUNDS,
    kept_file,
)
from fedadb.storage.tensorfile import read_tensors, write_tensors


@dataclass(frozen=True)
class History:
    """A finished run: its directory and its records, one per round.

    ```python
    history = fedadb.run(fedadb.Experiment(rounds=2))
    history.accuracy[-1], history.rounds[-1]["loss"], history.weights()["heads.L.bias"]
    ```
    """

    rounds: list[Record]
    out: Path | None = None
    kept_weights: Mapping[str, Tensor] = field(default_factory=dict, repr=False)

    @property
    def directory(self) -> Path:
        """The run's directory."""
        if self.out is None:
            raise BadInput("this simulation kept no directory; simulate(…, out=DIRECTORY) does")
        return self.out

    @property
    def accuracy(self) -> list[float]:
        """The test accuracy of each round, in [0, 1]."""
        return [record["accuracy"] for record in self.rounds]

    def weights(self) -> dict[str, Tensor]:
        """The deployed weights by parameter name, as in `model.safetensors`."""
        if self.out is None:
            return dict(self.kept_weights)
        tensors, _ = read_tensors(
            self.directory / MODEL, "if you delete it, `fedadb.run` writes it again"
        )
        return tensors


class ActiveRun(NamedTuple):
    """A run whose directory this process has locked."""

    directory: Path
    done: list[Record]  # the rounds that earlier processes finished
    rounds: Iterator[Record]  # trains the remaining ones


def run(
    experiment: Experiment,
    out: str | Path | None = None,
    observers: Sequence[ObserverOrFunction] = (),
    any_kernels: bool = False,
) -> History:
    """Run the experiment, or resume it if an earlier call was interrupted.

    Args:
        experiment: What to run.
        out: The run's directory; by default `runs/NAME`, where the name follows from the
            experiment.
        observers: Observers of the run, or functions that are called with each new record.
        any_kernels: Whether to resume even if other kernels computed the earlier rounds, for
            example after an update of the compiler; the bits of the later rounds differ then.

    ```python
    history = fedadb.run(fedadb.Experiment(dataset="digits", rounds=3), observers=[print])
    print(max(history.accuracy))
    ```
    """
    records = list(rounds(experiment, out, observers, any_kernels))
    return History(records, Path(out) if out else default_directory(experiment))


def rounds(
    experiment: Experiment,
    out: str | Path | None = None,
    observers: Sequence[ObserverOrFunction] = (),
    any_kernels: bool = False,
) -> Generator[Record]:
    """Run the experiment as `run` does, and yield each round's record as soon as it is made.

    The records of an earlier call that was interrupted come first. To leave the loop early is an
    interruption too: what has been trained is kept, and another call resumes. While the generator
    is active, torch computes in one thread.

    ```python
    for record in fedadb.rounds(fedadb.Experiment(rounds=5)):
        print(record["round"], record["accuracy"])
        if record["accuracy"] > 0.5:
            break
    ```
    """
    if not isinstance(experiment, Experiment):
        raise BadInput(
            f"{experiment!r} is not an Experiment: Experiment(dataset=…) makes one, and "
            "Experiment.read makes one of a table"
        )
    directory = Path(out) if out else default_directory(experiment)
    with start_run(experiment, directory, observers=observers, any_kernels=any_kernels) as active:
        yield from active.done
        yield from active.rounds


def simulate(
    algorithm: Any,
    model: Any,
    data: Any,
    *,
    out: str | Path | None = None,
    observers: Sequence[ObserverOrFunction] = (),
    any_kernels: bool = False,
    **settings: Any,
) -> History:
    """Simulate a federation, and return its history; nothing is left on the disk.

    Args:
        algorithm: An algorithm, or its name.
        model: A model, or its name.
        data: A dataset's name, or data of your own.
        out: A directory to keep, as that of `run`.
        observers: As in `run`.
        any_kernels: As in `run`, for a directory that is kept.
        settings: Other settings of the experiment.

    ```python
    history = fedadb.simulate("fedavg", "lenet", "digits", rounds=3, local={"epochs": 1})
    print(history.accuracy)
    ```
    """
    experiment = Experiment(algorithm=algorithm, model=model, dataset=data, **settings)
    if out:
        return run(experiment, out, observers, any_kernels)
    with TemporaryDirectory(prefix="fedadb-") as directory:
        history = run(experiment, Path(directory) / "run", observers)
        return History(history.rounds, kept_weights=history.weights())


@contextmanager
def start_run(
    experiment: Experiment,
    out: Path,
    progress: Progress = no_progress,
    make_backend: MakeBackend = simulation,
    from_round: int | None = None,
    observers: Sequence[ObserverOrFunction] = (),
    any_kernels: bool = False,
) -> Iterator[ActiveRun]:
    """Lock a directory that is new or holds this experiment, and prepare to train.

    Nothing is written before everything that can be wrong with the experiment has been checked.
    With `from_round`, the run forgets the rounds after that one; it can return to the last three.
    With `any_kernels`, or with `engine.kernels = "torch"`, it resumes even if other kernels
    computed the earlier rounds.
    """
    watching = [RunLog(), *as_observers(observers)]
    require_same_run(out, experiment)
    if (out / MODEL).exists():
        if from_round is not None:
            raise BadInput(f"--from-round {from_round}: the run in {out} is finished")
        done = _finished_records(experiment, out)
        with observed(watching, experiment, out, done, iter(())) as rounds:
            yield ActiveRun(out, done, rounds)
        return
    with make_backend(experiment, progress) as backend, one_thread():
        out.mkdir(parents=True, exist_ok=True)
        with locked(out):
            require_same_run(out, experiment)  # another process may have used it in the meantime
            checkpoint = out / CHECKPOINT
            if from_round is not None:
                checkpoint = find_checkpoint(out, from_round)
            privacy = privacy_of(experiment)
            mechanism = privacy.mechanism(backend.random) if privacy else None
            start, memories = _resume(experiment, backend, checkpoint, any_kernels, mechanism)
            if from_round is not None:  # nothing is removed before all checks
                return_to_round(out, from_round)
            write_atomically(out / EXPERIMENT, experiment.toml().encode())
            write_atomically(out / DISCLOSURE, markdown(experiment.table()).encode())
            classes, counts, domains, *_ = backend.data
            partition: dict[str, Any] = {"classes": classes, "counts": counts, "domains": domains}
            if experiment.attack is not None:
                partition["attackers"] = sorted(attackers(experiment))
            write_atomically(out / PARTITION, json.dumps(partition).encode())
            kernels = kernels_of(backend.f)
            note_environment(out / ENVIRONMENT, start.round.t, experiment, kernels)
            done = truncate_records(out / ROUNDS, start.round.t)
            with (
                closing(_train(experiment, backend, out, start, memories, mechanism)) as trained,
                observed(watching, experiment, out, done, trained) as rounds,
            ):
                yield ActiveRun(out, done, rounds)


def _finished_records(experiment: Experiment, out: Path) -> list[Record]:
    """The records of a finished run, after a check that it is complete."""
    read_tensors(out / MODEL, "delete it, and the same command writes it again")
    records = read_records(out / ROUNDS)
    if len(records) != experiment.rounds:
        raise Fault(
            f"{out / ROUNDS} has {len(records)} of {experiment.rounds} rounds although the run is "
            "finished; choose another --out"
        )
    return records


def _resume(
    experiment: Experiment,
    backend: Backend,
    checkpoint: Path,
    any_kernels: bool,
    mechanism: Mechanism | None,
) -> tuple[Snapshot[HasWeights], Memories[Any]]:
    """The state of the checkpoint, or the initial one without it; and the clients' memories."""
    learner, w = make_learner(experiment, backend.f), backend.f.weights()
    clients = experiment.federation.clients
    # Clients are told the number of all rows, unless it is private; then each counts as one.
    examples = clients if mechanism else backend.data.examples
    before = Round(0, experiment.rounds, clients, examples)
    start = initial(learner, before, experiment.server.optimizer, mechanism)
    versions: dict[int, int] = {}
    if checkpoint.exists():
        digest, kernels = backend.data.digest, kernels_of(backend.f)
        decided = any_kernels or experiment.engine.kernels != "auto"
        start, versions = load_checkpoint(checkpoint, start, w, digest, kernels, decided)
        fits = start.round._replace(t=0, lr_factor=1.0) == before
        if not fits or not 0 < start.round.t <= before.total:
            raise Fault(
                f"{checkpoint} holds {start.round}, which does not fit this experiment; "
                "delete it to start over"
            )
    return start, Memories(checkpoint.with_name(MEMORIES), learner.first_memory(w), w, versions)


def _train(
    experiment: Experiment,
    backend: Backend,
    out: Path,
    start: Snapshot[HasWeights],
    memories: Memories[Any],
    mechanism: Mechanism | None,
) -> Generator[Record]:
    """Train the rounds after `start`; record and save each one, and yield its record."""
    algorithm, f = experiment.algorithm, backend.f
    learner, rng = make_learner(experiment, f), Stream(experiment.seed)
    client_models = ClientModels(backend.test_set) if experiment.record_clients else None
    now, began = start, time.perf_counter()
    # The last process may have ended after it saved a round and before it removed what is old.
    remove_old_checkpoints(out, start.round.t)
    checkpointed = earlier_memories(out) | {start.round.t: dict(memories.versions)}
    memories.prune(*checkpointed.values())
    with backend.open(memories) as (cohort, evaluator):
        rounds = federate(
            learner,
            cohort,
            choose=backend.random.sample,
            rng=rng,
            start=start,
            optimizer=experiment.server.optimizer,
            inspect=client_models.evaluate if client_models else lambda reply: None,
            mechanism=mechanism,
        )
        for (now, versions), scores in evaluated(
            _committed(rounds, backend, memories),
            evaluator,
            lambda item: algorithm.deployed(item[0].server),
        ):
            seconds, began = time.perf_counter() - began, time.perf_counter()
            if experiment.keeps_broadcast(now.round.t):
                kept = algorithm.keep(now.sent, f)
                if kept is not None:
                    write_tensors(kept_file(out, now.round.t), pack(kept), {})
            if client_models:  # this optional work does not count as training time
                seconds -= client_models.take_seconds()
            record = _record(experiment, backend, now, scores, seconds)
            if client_models:
                record |= client_scores(now, backend.data.counts)
            if experiment.evaluates_personal(now.round.t):
                record |= _personal(backend, out, now, ReadOnlyMemories(memories, versions))
                began += record["personal_seconds"]
            # The record comes before the checkpoint: a round that was recorded but not saved is
            # trained again, with the same result.
            record = append_record(out / ROUNDS, record)
            keep_earlier_checkpoint(out, now.round.t - 1)
            digest, kernels = backend.data.digest, kernels_of(f)
            save_checkpoint(out / CHECKPOINT, now, versions, digest, kernels)
            remove_old_checkpoints(out, now.round.t)
            checkpointed[now.round.t] = versions
            checkpointed.pop(now.round.t - EARLIER_CHECKPOINTS - 1, None)
            memories.prune(*checkpointed.values())
            paused = time.perf_counter()
            yield record
            began += time.perf_counter() - paused  # what the caller does is no training time
    metadata = {"experiment": experiment.toml(), "classes": json.dumps(backend.data.classes)}
    if privacy := privacy_of(experiment):
        recorded = privacy.record(now.mechanism_state, simulated=not backend.random.secret)
        metadata["privacy"] = privacy_statement(recorded)
    weights = pack(algorithm.deployed(now.server)) | f.constants()
    write_tensors(out / MODEL, weights, metadata)


def _personal(
    backend: Backend, out: Path, now: Snapshot[HasWeights], memories: ReadOnlyMemories[Any]
) -> Record:
    """Evaluate the clients' personal models; each client's accuracy goes into a file."""
    began = time.perf_counter()
    accuracies = backend.personal_accuracies(now, memories)
    write_accuracies(out, now.round.t, accuracies)
    return personal_record(accuracies) | {"personal_seconds": time.perf_counter() - began}


def _committed(
    rounds: Iterator[Snapshot[HasWeights]], backend: Backend, memories: Memories[Any]
) -> Iterator[tuple[Snapshot[HasWeights], dict[int, int]]]:
    """Each round with the versions of the clients' memories, before the next round changes them.

    The memory of a client whose reply was not used stays as it was.
    """
    for snapshot in rounds:
        memories.commit(snapshot.clients)
        backend.use(snapshot.round.t, snapshot.clients)
        yield snapshot, dict(memories.versions)


def _record(
    experiment: Experiment,
    backend: Backend,
    now: Snapshot[HasWeights],
    scores: Scores,
    seconds: float,
) -> Record:
    seconds_key = experiment.algorithm.broadcast_seconds_key
    privacy, secret = privacy_of(experiment), backend.random.secret
    known = {
        "round": now.round.t,
        **{key: value for key, value in scores._asdict().items() if value not in ((), None)},
        "clients": [],  # secret: who takes part in a round is not to be known
        "bytes_down": size(now.sent),
        **({} if secret else _who_replied(backend, now)),
        "lr": experiment.local.lr_at(now.round.t, now.round.total),
        "seconds": None if secret else seconds,  # a slow client, or none, would be noticed
        **({seconds_key: now.broadcast_seconds} if seconds_key else {}),
    }
    if privacy:  # what clients measure on their rows is not private
        return known | privacy.record(now.mechanism_state, simulated=not secret)
    measured = mean_measurements([note.measured for note in now.replies])
    # A measurement never replaces one of the keys above.
    return known | {k: v for k, v in measured.items() if k not in known}


def _who_replied(backend: Backend, now: Snapshot[HasWeights]) -> Record:
    lost = {backend.client_name(k): reason for k, reason in now.lost.items()}
    bytes_up = [note.bytes for note in now.replies]
    return {
        "clients": now.clients,
        **({"lost": lost} if lost else {}),
        "bytes_up": fmean(bytes_up) if bytes_up else 0.0,
    }


def done_rounds(out: Path) -> int:
    """The number of finished rounds in a run's directory, even while another process trains."""
    return len(read_records(out / ROUNDS))
