"""Numbers that the text of the results states, computed from the rows."""

import math
from collections.abc import Callable, Iterator
from statistics import correlation, fmean

import pytest
from evidence import published, rates, readings, sweeps
from evidence.organamnist import DEVICE, SILO, difference
from evidence.pages import DOCS
from evidence.results import Cell, has, study_results
from evidence.rows import TARGETS, assignments, read_rows, rows_so_far

from fedadb.report import paper
from fedadb.report.metrics import PairedDifference, paired_difference

RESULTS = DOCS / "results"
ORGANAMNIST = {"dataset": "organamnist", "alpha": "0.1"}  # where the paper's Table 1 has it
FIRST = next(iter(readings.READINGS))


def best(cell: Cell) -> float:
    """The mean over seeds of the best five rounds."""
    return fmean(cell.values("best5"))


def lead(cell: Cell, over: Cell) -> PairedDifference:
    """The mean difference over common seeds, with its interval."""
    found = paired_difference(cell.by_seed(), over.by_seed())
    assert found is not None
    return found


def excludes_zero(found: PairedDifference) -> bool:
    assert found.half is not None
    return abs(found.mean) > found.half


def table1(study: str) -> dict[str, Cell]:
    """A study's cross-device cells by method."""
    found = study_results(RESULTS, study).part(has(scenario=DEVICE))
    return {method: found.cell(has(algorithm=method)) for method in found.different("algorithm")}


def rank_correlation(ours: dict[str, Cell]) -> tuple[float, float]:
    """Spearman's, of our accuracies and the paper's: without FedADB, and with it."""
    methods = [*(m for m in ours if m != "fedadb"), "fedadb"]
    here = [best(ours[m]) for m in methods]
    theirs = [in_paper(DEVICE, ORGANAMNIST, m) for m in methods]

    def of_first(n: int) -> float:
        ranks = ([sorted(some[:n]).index(one) for one in some[:n]] for some in (here, theirs))
        return correlation(*ranks)

    return of_first(len(methods) - 1), of_first(len(methods))


def times_first(method: str, cells: dict[str, Cell], target: float) -> int:
    """With how many seeds the method reaches the target before all others."""
    rounds = {m: [t or math.inf for t in cell.rounds_by_seed(target)] for m, cell in cells.items()}
    by_seed = [dict(zip(rounds, seed, strict=True)) for seed in zip(*rounds.values(), strict=True)]
    return sum(min(one, key=lambda m: one[m]) == method for one in by_seed)


def points(cell: Cell, method: str) -> float:
    """Our accuracy less the paper's."""
    found = difference(cell, method)
    assert found is not None
    return found


def organamnist() -> Iterator[str]:
    tuned = table1("organamnist-tuned")
    gap = best(tuned["fedadb"]) - best(tuned["fedavg"])
    yield f"is {gap:.0f} points below FedADB**"
    of_seeds = tuned["feddecorr"].values("best5")
    yield f"FedDecorr has anything from {min(of_seeds):.0f} to {max(of_seeds):.0f} %"
    assert max(tuned["fedacg"].values("best5")) < 36
    yield "FedACG stays below 36 % with every seed"
    clear = {m for m in tuned if m != "fedadb" and excludes_zero(lead(tuned["fedadb"], tuned[m]))}
    assert set(tuned) - clear == {"fedadb", "fedavg", "fedlmd", "fedsol"}
    assert all(lead(tuned["fedadb"], tuned[m]).mean < 4 for m in ("fedsol", "fedntd"))
    higher = {m: points(cell, m) for m, cell in tuned.items() if m not in ("fedavg", "fedadb")}
    above = [one for one in higher.values() if one > 0]
    yield f"FedAvg is {points(tuned['fedavg'], 'fedavg'):.0f} points lower in the paper than here"
    assert len(above) == 6
    yield f"six other baselines are {min(above):.0f} to {max(above):.0f} points lower"
    assert {m for m, one in higher.items() if one < 0} == {"fedexp", "feddecorr", "fedacg"}
    to_51 = {m: int(cell.rounds(0.51)) for m, cell in tuned.items() if cell.rounds(0.51) != "never"}
    leader, follower = sorted(to_51, key=lambda m: to_51[m])[:2]
    assert (leader, follower) == ("fedadb", "fedlmd")
    yield f"at 51 % after {to_51[leader]} rounds and FedLMD, the next, after {to_51[follower]}"
    seeds = ([t or 0 for t in tuned[m].rounds_by_seed(0.51)] for m in (leader, follower))
    of_leader, of_follower = seeds
    assert max(of_leader) == min(of_follower) > 0
    worst = {m: fmean(cell.values("worst_class")) for m, cell in tuned.items()}
    assert max(worst, key=lambda m: worst[m]) == "fedadb"
    yield f"{worst['fedadb']:.0f} % after the last round, where FedLMD's"
    yield f"FedLMD's has {worst['fedlmd']:.0f} %"
    yield f"FedAvg's {worst['fedavg']:.0f} %"
    behind_late = fmean(tuned["fedadb"].values("last10")) - fmean(tuned["fedavg"].values("last10"))
    yield f"by the last ten, FedAvg is {behind_late:.0f} points below"
    (own, own_with_it), (one_rate, one_rate_with_it) = (
        rank_correlation(table1(study)) for study in ("organamnist-tuned", "organamnist-paper")
    )
    yield f"with the paper's column is {own:.2f}, and {one_rate:.2f} in the first table"
    yield f"with FedADB it is {own_with_it:.2f} and {one_rate_with_it:.2f}"
    late = " and ".join(tuned[m].rounds(0.75) for m in ("fedadb", "fedlmd"))
    yield f"At 75 % both are level, after {late} rounds"
    yield from of_searches(tuned)
    yield from cross_silo()
    same = table1("organamnist-paper")
    above = [points(same[m], m) for m in ("feddyn", "fedntd", "fedgela", "fedlmd", "fedsol")]
    yield f"{min(above):.0f} to {max(above):.0f} points above the paper's numbers"
    *others, highest = sorted(same["fedexp"].values("best5"))
    assert max(others) < 25  # one class for all images has 18.5 %
    yield f"FedExP has {highest:.0f} % with one seed and does not learn with the others"
    assert max(same["fedavg"].values("best5")) < 26
    assert round(points(same["fedadb"], "fedadb")) == -1
    yield "FedAvg does not learn with any seed, and FedADB is a point lower"
    collapsed = {m for m, cell in same.items() if best(cell) < 40}
    assert collapsed == {"fedavg", "fedasam", "fedexp", "feddecorr", "fedacg"}
    assert [one > 30 for one in same["fedasam"].values("best5")] == [False, False, True]
    yield "FedASAM does with two of three seeds"
    behind = {m: lead(same["fedadb"], same[m]) for m in same if m not in {*collapsed, "fedadb"}}
    assert {m: round(one.mean) for m, one in behind.items()} == {
        "feddyn": 1, "fedlmd": 3, "fedsol": 3, "fedntd": 5, "fedgela": 23,
    }  # fmt: skip
    assert [m for m, one in behind.items() if excludes_zero(one)] == ["fedgela", "fedsol"]
    late_lead = paired_difference(*(same[m].by_seed("last10") for m in ("fedadb", "fedsol")))
    assert late_lead is not None
    assert not excludes_zero(late_lead)
    yield "FedDyn is a point behind FedADB, FedLMD and FedSOL three, FedNTD five and FedGELA 23"
    first, second = ([same[m].rounds(t) for t in (0.36, 0.51)] for m in ("fedadb", "feddyn"))
    yield f"FedADB is the first to 36 and 51 %, after {' and '.join(first)} rounds in the mean;"
    yield f"FedDyn, the next, needs {' and '.join(second)}, and is the first to 67 %"
    assert int(same["feddyn"].rounds(0.67)) < int(same["fedadb"].rounds(0.67))
    assert [times_first("fedadb", same, target) for target in (0.36, 0.51)] == [3, 2]
    yield "first to 36 % with all three and to 51 % with two"


def of_searches(tuned: dict[str, Cell]) -> Iterator[str]:
    before = {m: best(cell) for m, cell in table1("organamnist-short-search").items()}
    gained = {m: best(cell) - before[m] for m, cell in tuned.items()}
    yield f"and {best(tuned['fedadb']) - before['fedavg']:.0f} at 0.01"
    search = study_results(RESULTS, "organamnist-search")
    at_003, at_001 = (
        fmean(search.cell(has(algorithm="fedavg", lr=lr)).values("validation5"))
        for lr in (0.03, 0.01)
    )
    assert (round(at_003 - at_001), round(gained["fedavg"])) == (8, -6)
    assert (round(gained["fedntd"]), round(gained["fedadb"])) == (-1, 0)
    more = [gained[m] for m in ("fedgela", "feddecorr", "fedacg")]
    yield f"gain {min(more):.0f} to {max(more):.0f} points, FedADB nothing"
    broken = best(search.cell(has(algorithm="fedavg", lr=0.05)))
    yield f"is held out: {broken:.1f} % on test images"
    same = readings.reading("fedavg", readings.READINGS["a partition for each seed"], 0.05)
    yield f"it has [{best(study_results(RESULTS, 'readings').cell(same)):.1f} %](readings.md)"


def cross_silo() -> Iterator[str]:
    same, tuned = (
        study_results(RESULTS, study).part(has(scenario=SILO))
        for study in ("organamnist-paper", "organamnist-tuned")
    )
    ours = {m: best(same.cell(has(algorithm=m))) for m in ("fedavg", "fedadb", "fedexp")}
    theirs = {m: in_paper(SILO, ORGANAMNIST, m) for m in ours}
    yield f"{ours['fedavg']:.1f} % where the paper has {theirs['fedavg']:.1f} %"
    yield f"FedADB has {ours['fedadb']:.1f} %, two points above the paper"
    assert round(ours["fedadb"] - theirs["fedadb"]) == 2
    yield f"{ours['fedexp']:.1f} %, and {theirs['fedexp']:.1f} % in the paper"
    short = study_results(RESULTS, "organamnist-short-search").part(has(scenario=SILO))
    (fedavg, fedadb), before = (
        [best(part.cell(has(algorithm=m))) for m in ("fedavg", "fedadb")] for part in (tuned, short)
    )
    yield f"FedAvg has {fedavg:.1f} % and FedADB {fedadb:.1f} %"
    yield "it is {:.1f} and {:.1f} %".format(*before)
    gap = theirs["fedadb"] - theirs["fedavg"]
    yield f"Of the paper's {gap:.1f} points between them, nothing is left"
    assert abs(fedadb - fedavg) < 1.2 > before[1] - before[0]
    rounds = (tuned.cell(has(algorithm=m)).rounds(0.51) for m in ("fedadb", "fedavg"))
    yield "it is at 51 % after {} rounds, FedAvg after {}.".format(*rounds)


def readme() -> Iterator[str]:
    tuned, same = table1("organamnist-tuned"), table1("organamnist-paper")
    leads = {m: lead(tuned["fedadb"], tuned[m]) for m in tuned if m != "fedadb"}
    assert abs(leads["fedlmd"].mean) < 1
    yield "FedADB and FedLMD end level"
    assert {m for m in leads if not excludes_zero(leads[m])} == {"fedavg", "fedlmd", "fedsol"}
    short = table1("organamnist-short-search")["fedavg"]
    yield f"FedAvg has {short.number('best5')} % at 0.01"
    learnt = {m: sum(one > 30 for one in cell.values("best5")) for m, cell in same.items()}
    assert {m: seeds for m, seeds in learnt.items() if seeds < 3} == {
        "fedavg": 0, "feddecorr": 0, "fedacg": 0, "fedasam": 1, "fedexp": 1,
    }  # fmt: skip
    yield "FedDecorr, FedACG and most runs of FedASAM and FedExP do not learn there either"
    theirs = [
        in_paper(DEVICE, ORGANAMNIST, m) for m, n in learnt.items() if m != "fedavg" and n < 3
    ]
    yield f"where the paper has {min(theirs):.0f} to {max(theirs):.0f} %"
    others = [points(same[m], m) for m, n in learnt.items() if m != "fedadb" and n == 3]
    assert len(others) == 5
    yield f"the other five methods are {min(others):.0f} to {max(others):.0f} points above it"
    picked = {row["method"]: row for row in read_rows(RESULTS / "methods.csv")}
    shown = ("FedRoD", "FedVLS", "FedADB", "FedAvg")
    numbers = ((m, *(float(picked[m][key]) for key in ("picked", "picked std"))) for m in shown)
    yield ", ".join(f"{m} {mean:.1f} ± {deviation:.1f} %" for m, mean, deviation in numbers)
    changes = study_results(RESULTS, "better").part(has(dataset="cifar10", alpha=0.1))
    above = lead(*(changes.cell(has(algorithm=m)) for m in ("fedrod", "fedadb")))
    yield f"{above.mean:.1f} ± {above.half:.1f} points above FedADB"


def of_readings() -> Iterator[str]:
    found = study_results(RESULTS, "organamnist-rates").part(has(clip="auto"))
    by_rate = [found.part(has(lr=lr)) for lr in found.different("lr")]
    distances = [
        fmean(abs(points(part.cell(has(algorithm=m)), m)) for m in part.different("algorithm"))
        for part in by_rate
    ]
    assert min(distances) == distances[0], "the rate of `fedadb reproduce` is the nearest"
    yield f"are {min(distances):.0f} to {max(distances):.0f} points from it on average"
    for method in ("fedasam", "fedntd"):
        assert abs(points(by_rate[1].cell(has(algorithm=method)), method)) < 2
    yield "FedASAM and FedNTD are within two points at 0.03"
    every = study_results(RESULTS, "readings")
    cells = {
        (name, lr, method): every.cell(readings.reading(method, changes, lr))
        for name, changes in readings.READINGS.items()
        for lr in every.different("lr")
        for method in ("fedavg", "fedadb")
    }
    known = {key: best(cell) for key, cell in cells.items() if cell.rows}
    at_005 = [one for (_, lr, m), one in known.items() if (lr, m) == (0.05, "fedavg")]
    yield f"FedAvg at 0.05 has anything from {min(at_005):.0f} to {max(at_005):.0f} %"
    leads = [
        known[name, lr, "fedadb"] - one
        for (name, lr, m), one in known.items()
        if m == "fedavg" and one > 40 and (name, lr, "fedadb") in known
    ]
    lead = f"{min(leads):.0f} to {max(leads):.0f}".replace("-", "−")
    yield f"FedADB's lead is {lead} points"
    at_003 = [one for (_, lr, m), one in known.items() if (lr, m) == (0.03, "fedadb")]
    assert max(abs(one - in_paper(DEVICE, ORGANAMNIST, "fedadb")) for one in at_003) < 1
    yield "With 0.03 it is within a point in every reading"
    at_001 = [
        one
        for (n, lr, m), one in known.items()
        if (lr, m) == (0.01, "fedadb") and "longer" not in n
    ]
    yield f"At 0.01 it has {min(at_001):.0f} to {max(at_001):.0f} %"
    fastest = [
        min(
            int(cell.rounds(target))
            for (name, _, m), cell in cells.items()
            if m == "fedadb" and "longer" not in name and cell.rows
        )
        for target in TARGETS
    ]
    yield "to 36, 51 and 67 % need {}, {} and {} rounds".format(*fastest)
    longer = cells["longer epochs", 0.01, "fedadb"]
    rounds = " / ".join(longer.rounds(target) for target in TARGETS)
    theirs = " / ".join(published.rounds("organamnist", "fedadb", t) for t in TARGETS)
    yield f"{best(longer):.1f} % after {rounds} rounds, against the paper's 78.0 % after {theirs}"
    unlimited = [
        one for (n, _, m), one in known.items() if (m, "no limit" in n) == ("fedavg", True)
    ]
    assert len(unlimited) == 3
    yield f"FedAvg has {min(unlimited):.0f} to {max(unlimited):.0f} % at each of the three rates"
    mirrored = {
        FIRST: "not mirrored",
        "without validation images": "no validation images, not mirrored",
    }
    lost = {
        (method, lr, with_it): known[without, lr, method] - known[with_it, lr, method]
        for with_it, without in mirrored.items()
        for lr in every.different("lr")
        for method in ("fedavg", "fedadb")
    }
    at_lower = {
        m: [one for (n, lr, _), one in lost.items() if n == m and lr < 0.05]
        for m in ("fedavg", "fedadb")
    }
    yield f"costs FedAvg {min(at_lower['fedavg']):.0f} to {max(at_lower['fedavg']):.0f} points"
    yield f"and FedADB {max(at_lower['fedadb']):.0f} at most"
    gained = -lost["fedavg", 0.05, "without validation images"]
    yield f"with both, and is {gained:.0f} points better with it"
    for method in ("feddecorr", "fedacg", "fedgela", "fedexp"):
        assert min(abs(points(p.cell(has(algorithm=method)), method)) for p in by_rate) > 8
    yield "FedDecorr, FedACG, FedGELA and FedExP are more than 8 points away at every rate"
    yield from other_settings()
    above = contradictions()
    yield f"in {len(above)} cells of Table 2"
    assert sum(points > deviation for points, deviation in above) == 9
    yield "in nine of them by more than Table 1's deviation"
    three_seeds = table1("organamnist-paper")
    distance = fmean(abs(points(cell, m)) for m, cell in three_seeds.items())
    yield f"with all three, the mean distance is {distance:.1f}"
    spread = sorted(t for t in three_seeds["fedadb"].rounds_by_seed(0.51) if t)
    yield "51 % after {}, {} and {}.".format(*spread)
    short = table1("organamnist-short-search")["fedavg"]
    own = short.values("best5")
    yield f"has {min(own):.0f} to {max(own):.0f} %. FedAvg at 0.05"
    (run,) = cells[FIRST, 0.03, "fedadb"].runs
    lightly = readings.SMOOTHINGS["the newest round counts 0.8"]
    yield f"FedADB's rounds at 0.03 are {readings.rounds_after(lightly, run)}:"
    assert all(
        float(row["accuracy"]) != in_paper(DEVICE, {"dataset": "cifar10", **row}, "fedavg")
        for row in paper.table("ablation")
        if (row["agb"], row["lcb"], row["cag"]) == ("no", "no", "no")
    )
    yield "FedAvg's numbers on CIFAR-10 also differ between Tables 1 and 3"
    close = [
        abs(in_paper(SILO, row, "fedacg") - in_paper(SILO, row, "fedavg")) < 0.7
        for row in paper.table("table1")
        if (row["scenario"], row["algorithm"]) == (SILO, "fedavg") and row["dataset"] != "average"
    ]
    assert (sum(close), len(close)) == (9, 10)
    yield "nine of the paper's ten cross-silo columns"


def other_settings() -> Iterator[str]:
    every, found = (
        study_results(RESULTS, f"organamnist-{name}").part(has(lr=0.01))
        for name in ("rates", "settings")
    )
    calm, usual = found.cell(has(lam=0.0)), every.cell(has(algorithm="fedacg", clip="auto"))
    yield f"FedACG has {best(calm):.1f} % at 0.01, half a point above"
    assert 0.3 < points(calm, "fedacg") < 0.7
    yield f"and with it {best(usual):.1f} %"
    weak = study_results(RESULTS, "organamnist-settings").part(has(lam=0.01))
    assert {round(points(weak.cell(has(lr=lr)), "feddecorr")) for lr in (0.01, 0.03)} == {-9, -8}
    clipped = study_results(RESULTS, "organamnist-rates").part(has(algorithm="fedexp", clip=10.0))
    yield f"bring it to {-points(clipped.cell(has(lr=0.01)), 'fedexp'):.0f} points below the paper"
    assert max(best(clipped.cell(has(lr=lr))) for lr in (0.03, 0.05)) < 25
    for method in ("fedgela", "feddecorr", "fedacg"):
        assert max(best(found.cell(has(algorithm=method))) for lr in (0.01, 0.03)) > 0


def cifar10() -> Iterator[str]:
    found = study_results(RESULTS, "cifar10-lenet")
    leads, in_the_paper = [], []
    for alpha in found.different("alpha"):
        cells = {m: found.cell(has(algorithm=m, alpha=alpha)) for m in found.different("algorithm")}
        for seed, accuracy in cells["fedadb"].by_seed().items():
            others = [cells[m].by_seed().get(seed, 0) for m in cells if m != "fedadb"]
            assert accuracy > max(others)
        ours = {m: best(cell) for m, cell in cells.items()}
        leads.append(ours.pop("fedadb") - max(ours.values()))
        like = {"dataset": "cifar10", "alpha": f"{alpha:g}"}
        theirs = {m: in_paper(DEVICE, like, m) for m in cells if m != "scaffold"}
        in_the_paper.append(theirs.pop("fedadb") - max(theirs.values()))
        if alpha == 0.05:
            yield f"with {min(ours.values()):.0f} to {max(ours.values()):.0f} %, at the rates"
        if alpha in (0.1, 0.2):
            assert sorted(ours, key=lambda m: ours[m]).index("feddyn") <= 1
            assert (min if alpha == 0.1 else max)(theirs, key=lambda m: theirs[m]) == "feddyn"
    yield "it is {:.0f} points above the second at α = 0.05, {:.0f} at 0.1, {:.0f} at 0.2".format(
        *leads
    )
    yield f"at 0.2 and {leads[3]:.0f} at 0.5"
    first, second, behind, last = in_the_paper
    yield f"leads by {first:.0f}, {second:.0f} and {last:.0f} points at 0.05, 0.1 and 0.5"
    yield f"at 0.2, FedDyn is {-behind:.0f} above it"
    skewed = rates.by_label(study_results(RESULTS, "cifar10-skewed-rates"))
    by_rate = {
        name: [fmean(part.cell(has(lr=lr)).values("validation5")) for lr in part.different("lr")]
        for name, part in skewed.items()
    }
    fedadb_at = by_rate.pop("FedADB")
    assert {round(one) for one in fedadb_at} == {25}
    assert max(values[2] for values in by_rate.values()) < 14
    highest = {name: max(values) for name, values in by_rate.items()}
    assert sorted(highest, key=lambda name: -highest[name])[:3] == ["FedLMD", "FedSOL", "FedNTD"]
    plain = best(found.cell(has(algorithm="fedntd", alpha=0.05)))
    assert round(by_rate["FedNTD"][1] - plain) == 7
    yield f"FedNTD have {highest['FedNTD']:.0f} to {highest['FedLMD']:.0f} %"
    yield f"{max(fedadb_at) - highest['FedLMD']:.0f} points above FedLMD at its best"
    rows = sorted(rows_so_far(RESULTS / "resnet18.csv"), key=lambda row: int(row["round"]))
    fedadb, fedavg = ([r for r in rows if r["algorithm"] == m] for m in ("fedadb", "fedavg"))
    late = [fmean(float(row["accuracy"]) for row in part[-3:]) for part in (fedadb, fedavg)]
    yield "the last three have {:.1f} and {:.1f} % on average".format(*late)
    assert min(float(row["tau"]) for row in fedadb[1:]) >= 0.96
    there = [float(row["anchor_confidence"]) for row in fedadb[1:]]
    yield f"In the clients' first balanced batch it is {min(there):.2f} to {max(there):.2f}"


def of_analyses() -> Iterator[str]:
    by_method: dict[tuple[str, str, str], list[float]] = {}
    for row in rows_so_far(RESULTS / "analyses.csv"):
        lr = f"{assignments(row)['local.lr']:g}"
        key = (row["measurement"], row["algorithm"], lr)
        by_method.setdefault(key, []).append(float(row["value"]))
    mean = {key: fmean(values) for key, values in by_method.items()}
    top = [mean["λ₁", m, lr] for lr in ("0.01", "0.03") for m in ("fedavg", "fedadb")]
    yield "λ₁ is {:.0f} (FedAvg) and {:.0f} (FedADB) at 0.01, and {:.0f} and {:.0f} at 0.03".format(
        *top
    )

    def lower(name: str, lr: str) -> int:
        """With how many seeds FedADB's number is below FedAvg's λ₁ or λ₁/λ₅ at the same rate."""
        both = by_method[name, "fedadb", lr], by_method[name.partition(" ")[0], "fedavg", lr]
        return sum(ours < theirs for ours, theirs in zip(*both, strict=True))

    assert (lower("λ₁", "0.01"), lower("λ₁", "0.03")) == (0, 1)
    assert (lower("λ₁/λ₅", "0.01"), lower("λ₁/λ₅", "0.03")) == (3, 1)
    assert lower("λ₁/λ₅ at FedAvg's training loss", "0.01") == 2
    above = {
        name: [
            ours - theirs
            for ours, theirs in zip(
                by_method[name, "fedadb", "0.01"], by_method["λ₁", "fedavg", "0.01"], strict=True
            )
        ]
        for name in ("λ₁", "λ₁ at FedAvg's training loss")
    }
    (least, most), (least_at_loss, most_at_loss) = ((min(one), max(one)) for one in above.values())
    yield f"with each of the three seeds at 0.01, by {least:.0f} to {most:.0f}, and"
    yield f"has a larger λ₁, by {least_at_loss:.0f} to {most_at_loss:.0f}"
    of_anchors = [
        mean["PSNR of an anchor and its nearest image", "fedadb", lr] for lr in ("0.01", "0.03")
    ]
    noise, image = (
        mean[f"PSNR of {what}", "fedadb", "0.03"]
        for what in ("starting noise and its nearest image", "an image and its nearest other")
    )
    yield f"{min(of_anchors):.1f} to {max(of_anchors):.1f} dB against {noise:.1f};"
    yield f"a real image and its nearest other one have {image:.1f}"
    by_features = mean["membership AUC by features", "fedadb", "0.03"]
    by_loss = mean["membership AUC by loss", "fedadb", "0.03"]
    yield f"anchors in features have {by_features:.2f}, the model's own loss {by_loss:.2f}"


def ablation() -> Iterator[str]:
    every = study_results(RESULTS, "ablation")
    whole = {"algorithm": "fedadb", "generate": True, "calibrate": True, "beta": "none"}

    def parts(alpha: float, **settings: object) -> Cell:
        return every.cell(has(**{**whole, "alpha": alpha, **settings}))

    alphas = every.different("alpha")
    ours = [
        [best(parts(a)) - best(parts(a, **{off: False})) for a in alphas]
        for off in ("generate", "calibrate")
    ]
    theirs = [
        [of_paper_parts(a) - of_paper_parts(a, **{off: "no"}) for a in alphas]
        for off in ("cag", "lcb")
    ]
    yield "has {:.0f} points more with them than without at α = 0.05, {:.0f} at".format(*ours[0])
    yield f"0.1 and {ours[0][2]:.0f} at 0.2, in the mean"
    for off in ("generate", "calibrate"):
        assert not any(excludes_zero(lead(parts(a), parts(a, **{off: False}))) for a in alphas)
    yield "The paper's gain is {:.0f}, {:.0f} and {:.0f}.".format(*theirs[0])
    of_local = "{}, {} and {} points".format(*map(round, ours[1])).replace("-", "−")
    yield of_local + ", where the paper has {:.0f}, {:.0f} and {:.0f}.".format(*theirs[1])
    fedavg = {a: best(every.cell(has(algorithm="fedavg", alpha=a))) for a in alphas}
    without = [best(parts(a, generate=False)) - fedavg[a] for a in (0.1, 0.2)]
    yield "{:.0f} and {:.0f} points of".format(*without)
    balanced = [parts(a, generate=False, calibrate=False) for a in alphas]
    anchored = [parts(a, calibrate=False) for a in alphas]
    gains = [best(cell) - fedavg[a] for a, cell in zip(alphas, balanced, strict=True)]
    yield "without anchors, is {:.0f}, {:.0f} and {:.0f} points above FedAvg".format(*gains)
    by_anchors = [lead(*both) for both in zip(anchored, balanced, strict=True)]
    yield "alone has {:.0f}, {:.0f} and {:.0f} points more".format(
        *(one.mean for one in by_anchors)
    )
    assert [excludes_zero(one) for one in by_anchors] == [True, False, False]
    yield f"with each seed ({by_anchors[0].mean:.1f} ± {by_anchors[0].half:.1f})"
    for alpha in (0.1, 0.2):
        plain = every.cell(has(algorithm="fedavg", alpha=alpha))
        for cell in (parts(alpha), parts(alpha, generate=False)):
            assert excludes_zero(lead(cell, plain))
    yield "{:.0f} and {:.0f}".format(*(best(parts(a)) - fedavg[a] for a in (0.1, 0.2)))
    yield f"a seed with {min(parts(0.05).values('best5')):.0f} %"
    yield f"{best(parts(0.05, beta=0.9)):.0f} % at 0.9"
    betas = [beta for beta in every.different("beta") if beta is not None]
    at_01 = [best(parts(0.1, beta=beta)) for beta in betas]
    yield f"all have {min(at_01):.0f} to {max(at_01):.0f} %"
    alone = best(parts(0.1, calibrate=False))
    assert min(at_01) < alone < max(at_01)
    table4 = published.accuracy("beta", dataset="cifar10", beta="0.1")
    assert table4 is not None
    yield f"β = 0.1 has {table4 - of_paper_parts(0.1, lcb='no'):.0f} points more"
    assert round(best(parts(0.1, beta=0.1)) - alone) == 1
    large = [best(parts(0.2, beta=beta)) for beta in (0.5, 0.7, 0.9)]
    assert {round(one) for one in large} == {76}
    yield f"{best(parts(0.2, beta=0.1)):.0f} % at 0.1, 76 % at 0.5 and more"
    for alpha in alphas:
        fixed = max(best(parts(alpha, beta=beta)) for beta in betas if beta != "none")
        assert 0 < fixed - best(parts(alpha)) < 5
    small = [parts(0.05, beta=beta) for beta in (0.1, 0.3)]
    stated = " and ".join(f"{best(cell):.0f}" for cell in small)
    yield f"a fixed 0.1 or 0.3 has {stated} %, the adaptive one {best(parts(0.05)):.0f} %"
    swept = sweeps.all_sweeps(RESULTS)
    for key in ("local.epochs", "local.lr"):
        for value in sweeps.values_of(swept, key):
            assert best(sweeps.cell_of(swept, "fedadb", key, value)) > best(
                sweeps.cell_of(swept, "fedavg", key, value)
            )
    yield "FedADB is above FedAvg at every setting"
    for key, value in (("local.epochs", 1), ("local.lr", 0.1)):
        of_methods = [sweeps.cell_of(swept, m, key, value).by_seed() for m in ("fedadb", "fedavg")]
        assert 0 < sum(of_methods[0][seed] > of_methods[1][seed] for seed in of_methods[0]) < 3
    default = best(sweeps.cell_of(swept, "fedadb", "algorithm.sigma", 1.0))

    def changes(key: str) -> list[float]:
        """What each value changes."""
        cells = [
            sweeps.cell_of(swept, "fedadb", key, value) for value in sweeps.values_of(swept, key)
        ]
        return [best(cell) - default for cell in cells]

    several = changes("algorithm.anchors_per_class")
    assert max(several) - min(several) < 1.4
    yield "one to ten are within 1.4 points"
    for key in ("algorithm.steps", "algorithm.lam"):
        assert max(map(abs, changes(key))) < 1
    tenth, *_, twice = changes("algorithm.eta")
    assert (round(tenth), round(twice)) == (-2, 1)
    least, half, _, double = changes("algorithm.sigma")
    yield f"noise of 0.1 cost {-least:.0f} points"
    assert max(abs(half), abs(double)) < 0.5


def of_changes() -> Iterator[str]:
    yield from one_branch()
    found = study_results(RESULTS, "better")
    change = "experiments.candidates:AnchoredSoftmax"
    cells = {
        (method, dataset, alpha): found.cell(has(algorithm=method, dataset=dataset, alpha=alpha))
        for method in (change, "fedadb")
        for dataset in ("organamnist", "cifar10")
        for alpha in (0.05, 0.1)
    }
    wins = [
        best(cell) > best(cells["fedadb", d, a]) for (m, d, a), cell in cells.items() if m == change
    ]
    assert (sum(wins), len(wins)) == (3, 4)
    yield "above FedADB in the mean** in three of four settings"
    worst, beside = (min(cells[m, "organamnist", 0.05].values("best5")) for m in (change, "fedadb"))
    yield f"one seed of it has {worst:.0f} % on OrganAMNIST, where FedADB has {beside:.0f} %"
    where = [(d, a) for m, d, a in cells if m == change]
    fedrod = {(d, a): found.cell(has(algorithm="fedrod", dataset=d, alpha=a)) for d, a in where}
    assert sum(best(fedrod[one]) > best(cells[change, *one]) for one in where) == 3
    assert not any(excludes_zero(lead(fedrod[one], cells[change, *one])) for one in where)
    yield "in the mean FedRoD is above it in three of four settings, too, within the noise"
    assert all(best(fedrod[one]) > best(cells["fedadb", *one]) for one in where)
    other = "experiments.candidates:SmallerBeta"
    clear = {
        (m, d, a)
        for m in (change, other, "fedrod")
        for d, a in where
        if excludes_zero(
            lead(found.cell(has(algorithm=m, dataset=d, alpha=a)), cells["fedadb", d, a])
        )
    }
    assert clear == {("fedrod", "cifar10", 0.1)}
    found_lead = lead(fedrod["cifar10", 0.1], cells["fedadb", "cifar10", 0.1])
    yield f"by {found_lead.mean:.1f} ± {found_lead.half:.1f} points, the only difference here"
    here = found.cell(has(algorithm="fedrod", dataset="organamnist", alpha=0.1)).by_seed()[0]
    above = best(study_results(RESULTS, "tried").cell(has(algorithm="fedrod", lr=0.1)))
    yield f"FedRoD's seed 0 has {here:.1f} % here on OrganAMNIST, α = 0.1, and {above:.1f} %"


def one_branch() -> Iterator[str]:
    methods = rates.by_label(study_results(RESULTS, "one-branch"))
    ours, whole = methods["OneBranch"], methods["FedADB"]
    where = [has(dataset=d, alpha=a) for d in ours.different("dataset") for a in (0.05, 0.1)]
    gains = [lead(ours.cell(one), whole.cell(one)) for one in where]
    assert len(gains) == 4
    assert not any(map(excludes_zero, gains))
    means = [one.mean for one in gains]
    assert min(means) > 0
    yield f"in all four settings, by {min(means):.1f} to {max(means):.1f} points"
    lost = [of_paper_parts(a) - of_paper_parts(a, lcb="no") for a in (0.05, 0.1)]
    yield f"{min(lost):.0f} to {max(lost):.0f} points less without the branch"
    # In the order of the settings: the datasets one after the other, α = 0.05 and 0.1 of each.
    excluded = [
        one.mean - one.half > -of for one, of in zip(gains, lost * 2, strict=True) if one.half
    ]
    assert excluded == [False, True, True, True]
    yield "three of the four intervals exclude that, but for OrganAMNIST's at α = 0.05"
    searched = rates.by_label(study_results(RESULTS, "one-branch-rates"))
    (processor,) = {row["processor"] for row in searched["OneBranch"].cell(has()).rows}
    costs = []
    for one in where:
        ours_took, whole_took = (
            min(
                float(row["seconds"])
                for row in searched[method].cell(one).rows
                if row["processor"] == processor
            )
            for method in ("OneBranch", "FedADB")
        )
        costs.append(ours_took / whole_took)
    yield f"took {min(costs):.2f} to {max(costs):.2f} of the time of FedADB's"
    parts = study_results(RESULTS, "ablation").part(
        has(algorithm="fedadb", alpha=0.2, generate=True, beta="none")
    )
    without = lead(*(parts.cell(has(calibrate=one)) for one in (True, False)))
    yield f"[{without.mean:.1f} ± {without.half:.1f} points](ablation.md#parts)"


def in_paper(scenario: str, like: dict[str, str], method: str) -> float:
    """The accuracy in Table 1 in the column of another of its rows."""
    return float(row_in_paper(scenario, like, method)["accuracy"])


def row_in_paper(scenario: str, like: dict[str, str], method: str) -> dict[str, str]:
    key = {"scenario": scenario, "algorithm": method, "dataset": like["dataset"]}
    key["alpha"] = like["alpha"]
    (row,) = [one for one in paper.table("table1") if key.items() <= one.items()]
    return row


def of_paper_parts(alpha: float, **parts: str) -> float:
    """The accuracy in Table 3 with all parts but those that are "no"."""
    found = published.accuracy(
        "ablation", **{"agb": "yes", "lcb": "yes", "cag": "yes", "alpha": f"{alpha:g}", **parts}
    )
    assert found is not None
    return found


def contradictions() -> list[tuple[float, float]]:
    """Targets of Table 2 that are reached, but above the method's accuracy in Table 1.

    By how many points, and Table 1's deviation.
    """
    found = []
    for row in filter(lambda row: row["rounds"], paper.table("convergence")):
        of_method = row_in_paper(DEVICE, row, row["algorithm"])
        above = float(row["target"]) - float(of_method["accuracy"])
        if above > 0:
            found.append((above, float(of_method["std"])))
    return found


STATED: dict[str, Callable[[], Iterator[str]]] = {
    "README.md": readme,
    "docs/results/organamnist.md": organamnist,
    "docs/results/readings.md": of_readings,
    "docs/results/cifar10.md": cifar10,
    "docs/results/analyses.md": of_analyses,
    "docs/results/ablation.md": ablation,
    "docs/results/better.md": of_changes,
}


@pytest.mark.parametrize("page", STATED)
def test_the_text_states_what_the_rows_say(page: str) -> None:
    text = " ".join((DOCS.parent / page).read_text(encoding="utf-8").split())
    assert [one for one in STATED[page]() if one not in text] == []
