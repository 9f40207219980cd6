"""The README."""

from collections.abc import Iterator

from evidence.organamnist import DEVICE
from evidence.results import has, study_results
from evidence.rows import read_rows
from tests.evidence.text.comparison import (
    ORGANAMNIST,
    RESULTS,
    best,
    excludes_zero,
    in_paper,
    lead,
    points,
    table1,
)


def stated() -> Iterator[str]:
    tuned, same = table1("organamnist-tuned"), table1("organamnist-paper")
    leads = {m: lead(tuned["fedadb"], tuned[m]) for m in tuned if m != "fedadb"}
    assert abs(leads["fedlmd"].mean) < 1
    yield "FedADB and FedLMD end level"
    assert {m for m in leads if not excludes_zero(leads[m])} == {"fedavg", "fedlmd", "fedsol"}
    short = table1("organamnist-short-search")
    yield f"FedAvg has {short['fedavg'].number('best5')} % at 0.01"
    over = {m: lead(short["fedadb"], cell) for m, cell in short.items() if m != "fedadb"}
    assert sum(map(excludes_zero, over.values())) == 4
    yield "four of ten do"
    yield f"FedDyn has {best(same['feddyn']):.1f} % at 0.05 on the one partition"
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
