"""Observers see what happens in a run, and change nothing of it."""

import copy
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import fedadb
from fedadb.core.errors import BadInput
from fedadb.experiment.config import Experiment
from fedadb.experiment.observation import Observer, ObserverWarning, RunLog, observed
from fedadb.experiment.run import History, start_run
from fedadb.storage.records import Record, read_records

pytestmark = pytest.mark.integration

SHORT = Experiment.read({"rounds": 3, "local": {"epochs": 1}, "algorithm": "fedavg"})


class Notes(Observer):
    """Notes every call."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def start(self, experiment: Experiment, directory: Path, done: Sequence[Record]) -> None:
        self.calls.append(("start", experiment, directory, [r["round"] for r in done]))

    def record(self, record: Record) -> None:
        self.calls.append(record)

    def end(self, finished: bool, error: BaseException | None) -> None:
        self.calls.append(("end", finished, error))


class Failing(Observer):
    """Raises in one of its methods, and counts its calls."""

    def __init__(self, method: str) -> None:
        self.method, self.calls = method, 0

    def _call(self, method: str) -> None:
        self.calls += 1
        if method == self.method:
            raise OSError("no space left")

    def start(self, experiment: Experiment, directory: Path, done: Sequence[Record]) -> None:
        self._call("start")

    def record(self, record: Record) -> None:
        self._call("record")

    def end(self, finished: bool, error: BaseException | None) -> None:
        self._call("end")


def without_times(records: Sequence[Record]) -> list[Record]:
    return [{k: v for k, v in r.items() if "seconds" not in k} for r in records]


@pytest.fixture(scope="module")
def unobserved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("unobserved") / "run"
    fedadb.run(SHORT, out)
    return out


def test_an_observer_sees_start_rounds_and_end(tmp_path: Path) -> None:
    notes, out = Notes(), tmp_path / "run"
    history = fedadb.run(SHORT, out, observers=[notes])
    assert notes.calls == [("start", SHORT, out, []), *history.rounds, ("end", True, None)]


def test_an_observer_of_a_resumed_run_sees_the_earlier_rounds_at_its_start(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with start_run(SHORT, out) as active:
        next(active.rounds)
    first, second = Notes(), Notes()
    history = fedadb.run(SHORT, out, observers=[first])
    assert first.calls == [("start", SHORT, out, [1]), *history.rounds[1:], ("end", True, None)]
    fedadb.run(SHORT, out, observers=[second])  # it is finished already
    assert second.calls == [("start", SHORT, out, [1, 2, 3]), ("end", True, None)]


def test_an_observer_sees_why_a_run_ends_early(tmp_path: Path) -> None:
    notes, error = Notes(), RuntimeError("the disk is on fire")

    def train() -> None:
        with start_run(SHORT, tmp_path / "run", observers=[notes]) as active:
            next(active.rounds)
            raise error

    with pytest.raises(RuntimeError, match="on fire"):
        train()
    assert notes.calls[-1] == ("end", False, error)
    rounds = fedadb.rounds(SHORT, tmp_path / "run", observers=[notes])
    next(rounds)
    rounds.close()
    assert notes.calls[-1] == ("end", False, None)


def test_a_run_that_is_refused_never_starts(tmp_path: Path, no_data: Path) -> None:
    notes = Notes()
    with pytest.raises(BadInput, match="fetch"):
        fedadb.run(Experiment(dataset="organamnist"), tmp_path / "run", observers=[notes])
    assert notes.calls == []


def test_a_function_sees_every_new_record(tmp_path: Path) -> None:
    seen: list[Record] = []
    history = fedadb.run(SHORT, tmp_path / "run", observers=[seen.append])
    assert seen == history.rounds


@pytest.mark.parametrize(("method", "calls"), [("start", 1), ("record", 2), ("end", 5)])
@pytest.mark.parametrize("workers", [1, 2])
def test_an_observer_that_fails_warns_once_and_stops_no_run(
    method: str, calls: int, workers: int, unobserved: Path, tmp_path: Path
) -> None:
    failing, notes = Failing(method), Notes()
    engine = {"workers": workers, "device": "cpu"}
    e = Experiment.read({**SHORT.table(), "engine": engine})
    with pytest.warns(ObserverWarning) as warned:
        history = fedadb.run(e, tmp_path / "run", observers=[failing, notes])
    assert [str(w.message) for w in warned] == [
        "the observer Failing failed and is not called again, but the run continues: "
        "OSError: no space left"
    ]
    assert failing.calls == calls
    assert notes.calls[1:-1] == history.rounds  # others are still called
    assert without_times(history.rounds) == without_times(read_records(unobserved / "rounds.jsonl"))
    expected = History([], unobserved).weights()
    assert all(torch.equal(w, expected[name]) for name, w in history.weights().items())


def test_an_observer_that_fails_stops_no_run_whose_warnings_are_errors(
    unobserved: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        history = fedadb.run(SHORT, tmp_path / "run", observers=[Failing("record")])
    assert len(history.rounds) == 3
    assert [r.levelname for r in caplog.records if "no space left" in r.message] == ["WARNING"]


def test_an_observer_cannot_change_a_record(unobserved: Path, tmp_path: Path) -> None:
    def vandal(record: Record) -> None:
        record["class_accuracy"].clear()
        record["accuracy"] = 1.0

    notes = Notes()
    history = fedadb.run(SHORT, tmp_path / "run", observers=[vandal, notes])
    assert without_times(history.rounds) == without_times(read_records(unobserved / "rounds.jsonl"))
    assert notes.calls[1:-1] == history.rounds


def test_ctrl_c_in_an_observer_stops_the_run(tmp_path: Path) -> None:
    def interrupt(record: Record) -> None:
        raise KeyboardInterrupt

    notes = Notes()
    with pytest.raises(KeyboardInterrupt):
        fedadb.run(SHORT, tmp_path / "run", observers=[interrupt, notes])
    assert notes.calls[-1][:2] == ("end", False)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([Notes], r"observers\[0\] is the class Notes: give Notes\(\)"),
        ([print, 3], r"observers\[1\] = 3: must be an Observer, or a function"),
        (print, r"observers = <built-in function print>: must be a list, such as \[print\]"),
    ],
)
def test_what_is_no_observer_is_refused_before_anything_is_written(
    given: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=message):
        fedadb.run(SHORT, tmp_path / "run", observers=given)
    assert not (tmp_path / "run").exists()


# the log


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(r.levelname, r.getMessage()) for r in caplog.records if r.name == "fedadb"]


def test_the_log_says_what_happens(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fedadb")
    out = tmp_path / "run"
    rounds = fedadb.rounds(SHORT, out)
    first = next(rounds)
    rounds.close()
    history = fedadb.run(SHORT, out)
    fedadb.run(SHORT, out)
    accuracy = [f"round {t} of 3: accuracy {a:.4f}" for t, a in enumerate(history.accuracy, 1)]
    assert first["accuracy"] == history.accuracy[0]
    assert logged(caplog) == [
        ("INFO", f"FedAvg starts, with 3 rounds, in {out}"),
        ("INFO", accuracy[0]),
        ("INFO", f"left after round 1 in {out}"),
        ("INFO", f"FedAvg resumes after round 1 of 3 in {out}"),
        ("INFO", accuracy[1]),
        ("INFO", accuracy[2]),
        ("INFO", f"finished in {out}"),
        ("INFO", f"FedAvg finished earlier, in {out}"),
        ("INFO", f"finished in {out}"),
    ]


def test_lost_replies_and_errors_are_warnings(caplog: pytest.LogCaptureFixture) -> None:
    def rounds() -> Iterator[Record]:
        yield {"round": 1, "accuracy": 0.5, "lost": {"north": "it disconnected"}}
        raise ValueError("wrong")

    with (
        pytest.raises(ValueError, match="wrong"),
        observed([RunLog()], SHORT, Path("run"), [], rounds()) as seen,
    ):
        list(seen)
    assert logged(caplog) == [
        ("WARNING", "round 1 continued without north: it disconnected"),
        ("WARNING", "stopped after round 1 in run: wrong"),
    ]


def test_a_run_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fedadb.run(SHORT, tmp_path / "run")
    assert capfd.readouterr() == ("", "")
    handlers = [type(handler) for handler in logging.getLogger("fedadb").handlers]
    assert logging.NullHandler in handlers


# time


def test_what_observers_and_callers_do_is_no_training_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that only observers and callers advance: no round takes any time."""
    now = 0.0

    def advance(_: object) -> None:
        nonlocal now
        now += 1000

    monkeypatch.setattr("fedadb.experiment.run.time.perf_counter", lambda: now)
    e = Experiment.read({**SHORT.table(), "engine": {"workers": 1}})
    seconds = []
    for record in fedadb.rounds(e, tmp_path / "run", observers=[advance]):
        seconds.append(record["seconds"])
        advance(record)
    assert seconds == [0.0, 0.0, 0.0]


def test_records_are_copied_for_each_observer(tmp_path: Path) -> None:
    """What one observer keeps, another cannot change later."""
    kept: list[Record] = []

    def keep(record: Record) -> None:
        kept.append(record)

    later: Callable[[Record], object] = lambda record: record.clear()  # noqa: E731
    history = fedadb.run(SHORT, tmp_path / "run", observers=[keep, later])
    assert kept == copy.deepcopy(history.rounds)
