"""Section 6 of the paper on OrganAMNIST: what `fedadb analyse` measures, over three seeds."""

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, pstdev

from evidence import published
from evidence.markdown import NOTHING, table
from evidence.rows import KEY, Row, assignments, row_of, rows_so_far, write_rows
from fedadb.analysis import forgetting, hessian, membership, pca, psnr
from fedadb.analysis.anchors import generates_anchors, read_kept_anchors
from fedadb.analysis.inputs import Options, normalised_batches, training_sample
from fedadb.core.data import Batch
from fedadb.core.errors import BadInput
from fedadb.core.vector import Vector
from fedadb.engine.process import one_thread
from fedadb.experiment.stored import StoredRun, read_run
from fedadb.report.labels import METHODS
from fedadb.report.recorded_runs import read_recorded_run

COLUMNS = (*KEY, "round", "measurement", "value")
OPTIONS = Options()

# After how many rounds the model was measured, or the round of the anchors; what; its value.
Measurement = tuple[int, str, float]


def analyse_runs(directories: Sequence[Path], to: Path) -> int:
    """Write what is measured of FedAvg's and FedADB's runs with the same seeds.

    FedADB is also measured at the loss of FedAvg; where a seed has two runs of it, of the first.

    Returns:
        The number of rows.
    """
    rows: list[Row] = []
    losses: dict[int, float] = {}  # of the first FedAvg model of each seed
    runs = [read_run(directory) for directory in directories]
    fedadb = [run for run in runs if generates_anchors(run)]
    fedavg = [run for run in runs if not generates_anchors(run)]
    if alone := {run.experiment.seed for run in fedadb} - {run.experiment.seed for run in fedavg}:
        raise BadInput(f"FedADB's runs with seed {', '.join(map(str, alone))} need one of FedAvg")
    for run in (*fedavg, *fedadb):
        key = {k: v for k, v in row_of(read_recorded_run(run.directory)).items() if k in KEY}
        seed = run.experiment.seed
        with one_thread():
            measured = list(of_model(run))
            if generates_anchors(run):
                measured += [*of_anchors(run), *at_loss(run, losses[seed])]
            else:
                loss = next(value for _, name, value in measured if name == "training loss")
                losses.setdefault(seed, loss)
        rows += [
            {**key, "round": str(t), "measurement": name, "value": f"{value:.6g}"}
            for t, name, value in measured
        ]
    write_rows(rows, to, COLUMNS)
    return len(rows)


def of_model(run: StoredRun) -> Iterator[Measurement]:
    last = run.experiment.rounds
    yield last, "forgetting (%)", 100 * forgetting.measure(run, OPTIONS)["forgetting"]
    curvature = hessian.measure(run, OPTIONS)
    yield last, "λ₁", curvature["lambda1"]
    yield last, "λ₁/λ₅", curvature["anisotropy"]
    yield last, "training accuracy (%)", 100 * curvature["training_accuracy"]
    yield last, "training loss", hessian.mean_loss(run.f, run.w, batches_of(run))


def of_anchors(run: StoredRun) -> Iterator[Measurement]:
    for numbers in pca.measure(run, OPTIONS).values():
        t = numbers["round"]
        yield t, "Pearson in three components, own class", numbers["diagonal_3"]
        yield t, "Pearson in three components, other classes", numbers["off_diagonal_3"]
        yield t, "Pearson in all dimensions, own class", numbers["diagonal"]
        yield t, "Pearson in all dimensions, other classes", numbers["off_diagonal"]
        yield t, "anchors nearest to their own class, all dimensions", numbers["nearest"]
    likeness = psnr.measure(run, OPTIONS)
    yield likeness["round"], "PSNR of an anchor and its nearest image", likeness["nearest"]
    yield likeness["round"], "PSNR of starting noise and its nearest image", likeness["noise"]
    yield likeness["round"], "PSNR of an image and its nearest other", likeness["real_nearest"]
    attacks = membership.measure(run, OPTIONS)
    for name in membership.ATTACKS:
        yield run.experiment.rounds, f"membership AUC by {name}", attacks[name]["value"]


def at_loss(run: StoredRun, loss: float) -> Iterator[Measurement]:
    """Curvature at the kept model whose training loss is nearest to the given one.

    The model that is sent in round t is that after t − 1 rounds.
    """
    batches = batches_of(run)
    by_round = {
        t - 1: (kept.w, hessian.mean_loss(run.f, kept.w, batches))
        for t, kept in read_kept_anchors(run).items()
    }
    t, (w, nearest) = min(by_round.items(), key=lambda item: abs(item[1][1] - loss))
    spectrum = curvature_at(run, w, batches)
    yield t, "training loss nearest to FedAvg's", nearest
    yield t, "λ₁ at FedAvg's training loss", float(spectrum.values[0])
    yield t, "λ₁/λ₅ at FedAvg's training loss", spectrum.anisotropy


def curvature_at(run: StoredRun, w: Vector, batches: Sequence[Batch]) -> hessian.Spectrum:
    size = int(hessian.deployed_weights(run.f, w).sum())
    return hessian.lanczos(hessian.hessian_product(run.f, w, batches), size)


def batches_of(run: StoredRun) -> list[Batch]:
    sample = training_sample(run, OPTIONS.images)
    return normalised_batches(run, run.require_data().train, sample)


# What the paper reports of each measurement, on other data with another model.
PAPER = {
    "forgetting (%)": "FedADB forgets less",
    "λ₁": f"FedADB is flatter: {published.curvature('lambda1')}",
    "λ₁/λ₅": f"FedADB is more even: {published.curvature('lambda1_over_lambda5')}",
    "training accuracy (%)": f"FedADB is higher: {published.curvature('training_accuracy')}",
    "Pearson in three components, own class": "grows",
    "Pearson in three components, other classes": "shrinks",
    "PSNR of an anchor and its nearest image": "low",
}


def measurements(results: Path) -> str:
    """Measurements × methods: mean and deviation over seeds; two rounds where two were measured."""
    # FedADB's rows come first in the file: it has every measurement.
    rows = rows_so_far(results / "analyses.csv")
    methods = list(dict.fromkeys(map(_method, rows)))
    body = [
        [
            name,
            *(
                _over_seeds(r for r in rows if (r["measurement"], _method(r)) == (name, method))
                for method in methods
            ),
            PAPER.get(name, ""),
        ]
        for name in dict.fromkeys(row["measurement"] for row in rows)
    ]
    return table(["", *methods, "the paper"], body) if rows else ""


def _method(row: Row) -> str:
    return f"{METHODS[row['algorithm']]}, lr {assignments(row)['local.lr']:g}"


def _over_seeds(rows: Iterable[Row]) -> str:
    """The mean over seeds and their deviation, at each round that was measured.

    A seed's rounds are taken in their order: which model has FedAvg's loss differs between seeds.
    """
    by_seed: dict[str, dict[int, float]] = {}
    for row in rows:
        by_seed.setdefault(row["seed"], {})[int(row["round"])] = float(row["value"])
    in_order = [[value for _, value in sorted(of_seed.items())] for of_seed in by_seed.values()]
    numbers = [with_three_digits(values) for values in zip(*in_order, strict=True)]
    return " → ".join(numbers).replace("-", "−") or NOTHING


def with_three_digits(values: Sequence[float]) -> str:
    """Mean and deviation with the decimals that give the mean three digits, three at most."""
    mean = fmean(values)
    size = abs(float(f"{mean:.3g}"))  # rounded, because 9.999 is 10.0
    before_point = max(0, math.floor(math.log10(size)) + 1) if size else 0
    decimals = max(0, 3 - before_point)
    return f"{mean:.{decimals}f} ± {pstdev(values):.{decimals}f}"


TABLES = {"analyses": measurements}
