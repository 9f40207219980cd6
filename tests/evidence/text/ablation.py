"""docs/results/ablation.md."""

from collections.abc import Iterator

from evidence import published, sweeps
from evidence.results import Cell, has, study_results
from tests.evidence.text.comparison import (
    RESULTS,
    best,
    excludes_zero,
    lead,
    of_paper_parts,
    with_half,
)


def stated() -> Iterator[str]:
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
    yield "points of {:.0f} and {:.0f}; the intervals of these four".format(
        *(best(parts(a)) - fedavg[a] for a in (0.1, 0.2))
    )
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
    small_beta, middle = parts(0.2, beta=0.1), parts(0.2, beta=0.5)
    behind = lead(middle, small_beta)
    assert excludes_zero(behind)
    yield f"76 % at 0.5 and more, {best(small_beta):.0f} % at 0.1, {with_half(behind)} points less"
    over_none = lead(middle, parts(0.2, calibrate=False))
    assert not excludes_zero(over_none)
    yield f"0.5 has {with_half(over_none)} points"
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
    by_epochs = [
        lead(*(sweeps.cell_of(swept, method, "local.epochs", n) for n in (10, 5)))
        for method in ("fedavg", "fedadb")
    ]
    yield "FedAvg gains {} points and FedADB {}.".format(*(with_half(one, 0) for one in by_epochs))
    default = sweeps.cell_of(swept, "fedadb", "algorithm.sigma", 1.0)

    def changes(key: str) -> list[float]:
        """What each value changes."""
        cells = [
            sweeps.cell_of(swept, "fedadb", key, value) for value in sweeps.values_of(swept, key)
        ]
        return [best(cell) - best(default) for cell in cells]

    several = changes("algorithm.anchors_per_class")
    assert max(several) - min(several) < 1.4
    yield "one to ten are within 1.4 points"
    for key in ("algorithm.steps", "algorithm.lam"):
        assert max(map(abs, changes(key))) < 1
    tenth, twice = (sweeps.cell_of(swept, "fedadb", "algorithm.eta", eta) for eta in (0.1, 2.0))
    lost, gained = lead(default, tenth), lead(twice, default)
    assert not excludes_zero(lost)
    assert not excludes_zero(gained)
    yield f"it has {with_half(lost)} points less, and twice of it {with_half(gained)} more"
    faint = sweeps.cell_of(swept, "fedadb", "algorithm.sigma", 0.1)
    yield f"two seeds lose 16 and 17 points and one 3 ({with_half(lead(default, faint), 0)})"
    by_seed = sorted(default.by_seed()[seed] - one for seed, one in faint.by_seed().items())
    assert [round(one) for one in by_seed] == [3, 16, 17]
    _, half, _, double = changes("algorithm.sigma")
    assert max(abs(half), abs(double)) < 0.5
