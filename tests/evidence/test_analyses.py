"""Analyses of FedAvg's and FedADB's runs, as rows and as a table."""

from pathlib import Path

import pytest

from evidence import analyses
from evidence.rows import read_rows, write_rows
from fedadb.analysis import hessian
from fedadb.analysis.anchors import read_kept_anchors
from fedadb.analysis.inputs import Options
from fedadb.core.errors import BadInput
from fedadb.experiment.config import Experiment
from fedadb.experiment.run import run
from fedadb.experiment.stored import read_run

SEEDS = (0, 1)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    out = tmp_path_factory.mktemp("runs")
    directories = []
    of_seeds = [(method, 0.05, seed) for seed in SEEDS for method in ("fedadb", "fedavg")]
    for method, lr, seed in [*of_seeds, ("fedavg", 0.01, 0)]:
        e = Experiment.read({
            "rounds": 3, "seed": seed, "algorithm": method, "keep_broadcasts": [1, 2, 3],
            "model": "mlp", "local": {"epochs": 1, "lr": lr}, "engine": {"workers": 1},
            "federation": {"clients": 5, "participation": 1.0, "partition": {"alpha": 5.0}},
        })  # fmt: skip
        directories.append(out / f"{method}-{lr}-{seed}")
        run(e, directories[-1])
    return directories


def test_every_measurement_of_every_run_is_a_row(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analyses, "OPTIONS", Options(images=60))
    path = tmp_path / "analyses.csv"
    assert analyses.analyse_runs(runs, path) == len(read_rows(path))
    rows = {
        (row["algorithm"], int(row["seed"]), row["measurement"], int(row["round"])): row["value"]
        for row in read_rows(path)
        if "lr=0.05" in row["settings"]
    }
    stored = read_run(runs[0])
    expected = hessian.measure(stored, Options(images=60))
    assert float(rows["fedadb", 0, "λ₁", 3]) == pytest.approx(expected["lambda1"], rel=1e-5)
    own = "Pearson in three components, own class"
    assert {t for _, seed, name, t in rows if name == own and seed == 1} == {1, 3}
    # FedAvg's final loss lies between that of some rounds of FedADB, and the nearest is taken.
    for seed in SEEDS:
        loss = float(rows["fedavg", seed, "training loss", 3])
        ((t, nearest),) = [
            (t, float(value))
            for (_, s, name, t), value in rows.items()
            if s == seed and name == "training loss nearest to FedAvg's"
        ]
        again = read_run(runs[2 * seed])
        batches = analyses.batches_of(again)
        kept = read_kept_anchors(again)
        losses = {u - 1: hessian.mean_loss(again.f, one.w, batches) for u, one in kept.items()}
        assert nearest == pytest.approx(losses[t], rel=1e-4)
        there = analyses.curvature_at(again, kept[t + 1].w, batches)
        found = float(rows["fedadb", seed, "λ₁ at FedAvg's training loss", t])
        assert found == pytest.approx(there.values[0], rel=1e-4)
        elsewhere = analyses.curvature_at(again, kept[min(kept)].w, batches)
        assert t == min(kept) - 1 or found != pytest.approx(elsewhere.values[0], rel=1e-3)
        assert abs(nearest - loss) <= min(abs(one - loss) for one in losses.values()) + 1e-4
    text = analyses.measurements(tmp_path)
    top = analyses.with_three_digits([float(rows["fedadb", seed, "λ₁", 3]) for seed in SEEDS])
    (line,) = [one for one in text.splitlines() if one.startswith("| λ₁ |")]
    assert f"| {top} |" in line
    (line,) = [one for one in text.splitlines() if one.startswith(f"| {own}")]
    assert " → " in line
    assert line.split("|")[3].strip() == "-"  # FedAvg has no anchors
    assert text.startswith("|  | FedADB, lr 0.05 | FedAvg, lr 0.01 | FedAvg, lr 0.05 |")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([0.1234], "0.123 ± 0.000"),
        ([1.0, 3.0], "2.00 ± 1.00"),
        ([9.999], "10.0 ± 0.0"),
        ([-99.96], "-100 ± 0"),
        ([1234.0, 1236.0], "1235 ± 1"),
        ([0.0], "0.000 ± 0.000"),
    ],
)
def test_a_mean_has_three_digits(values: list[float], text: str) -> None:
    assert analyses.with_three_digits(values) == text


def test_every_seed_of_fedadb_needs_one_of_fedavg(runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"with seed 1 need one of FedAvg"):
        analyses.analyse_runs(runs[:3], tmp_path / "analyses.csv")


def test_rounds_that_differ_between_seeds_are_one_number(tmp_path: Path) -> None:
    key = {"dataset": "digits", "settings": "--set 'local.lr=0.05'", "algorithm": "fedadb"}
    values = {("0", "2"): "1.0", ("1", "3"): "3.0"}  # by seed and round
    write_rows(
        [
            {**key, "seed": seed, "round": t, "measurement": "λ₁", "value": value}
            for (seed, t), value in values.items()
        ],
        tmp_path / "analyses.csv",
        analyses.COLUMNS,
    )
    assert "| 2.00 ± 1.00 |" in analyses.measurements(tmp_path)
