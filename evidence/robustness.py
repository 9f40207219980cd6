"""The tables of accuracy under attack."""

from functools import partial
from pathlib import Path

from evidence.markdown import NOTHING, table
from evidence.rows import Row, assignments, read_rows
from fedadb.report.labels import DATASETS, METHODS

ATTACKS = {
    "none": "no attack",
    "sign_flip": "sign flip",
    "scaled": "scaled",
    "gaussian": "Gaussian",
    "alie": "ALIE",
    "ipm": "IPM, ε = 0.1",
    "ipm 2.0": "IPM, ε = 2",
    "label_flip": "label flip",
}
RULES = {
    "": "mean",
    "clip": "clip",
    "median": "median",
    "trimmed_mean": "trimmed mean",
    "multi_krum": "multi-Krum",
    "geometric_median": "geometric median",
    "centred_clip": "centred clip",
    "nnm trimmed_mean": "NNM + trimmed mean",
    "nnm median": "NNM + median",
}


def attack_of(row: Row) -> str:
    attack = assignments(row).get("attack", {"name": "none"})
    stronger = attack["name"] == "ipm" and attack["epsilon"] != 0.1
    return f"ipm {attack['epsilon']}" if stronger else str(attack["name"])


def rule_of(row: Row) -> str:
    return " ".join(one["name"] for one in assignments(row).get("filter", []))


def under_attack(results: Path, *, dataset: str, alpha: float, algorithm: str) -> str:
    """Attacks × rules: the accuracy of the last five rounds."""
    rows = {
        (attack_of(row), rule_of(row)): row
        for row in read_rows(results / "robustness.csv")
        if (row["dataset"], row["algorithm"]) == (dataset, algorithm)
        and assignments(row).get("federation.partition.alpha", 0.1) == alpha
    }
    rules = [rule for rule in RULES if any(rule == found for _, found in rows)]
    attacks = [attack for attack in ATTACKS if any(attack == found for found, _ in rows)]
    body = [
        [ATTACKS[attack], *(accuracy(rows.get((attack, rule))) for rule in rules)]
        for attack in attacks
    ]
    return table(["", *(RULES[rule] for rule in rules)], body)


def accuracy(row: Row | None) -> str:
    if row is None:
        return NOTHING
    return f"{float(row['last5']):.1f}" if row["trained"] == row["rounds"] else "diverges"


def worst_classes(results: Path) -> str:
    """Settings × rules without attackers: the accuracy of the worst class after the last round."""
    honest = [row for row in read_rows(results / "robustness.csv") if attack_of(row) == "none"]
    settings: dict[tuple[str, float, str], dict[str, Row]] = {}
    for row in honest:
        alpha = assignments(row).get("federation.partition.alpha", 0.1)
        settings.setdefault((row["dataset"], alpha, row["algorithm"]), {})[rule_of(row)] = row
    body = [
        [
            f"{DATASETS[dataset]}, α = {alpha:g}, {METHODS[algorithm]}",
            *(_worst(by_rule.get(rule)) for rule in RULES),
        ]
        for (dataset, alpha, algorithm), by_rule in sorted(settings.items())
    ]
    return table(["", *RULES.values()], body)


def _worst(row: Row | None) -> str:
    return NOTHING if row is None else f"{float(row['worst_class']):.1f}"


TABLES = {
    f"attacks-{dataset}-{alpha:g}-{algorithm}": partial(
        under_attack, dataset=dataset, alpha=alpha, algorithm=algorithm
    )
    for dataset, alpha in (("digits", 0.1), ("digits", 10.0), ("organamnist", 0.3))
    for algorithm in ("fedavg", "fedadb")
} | {"worst-classes": worst_classes}
