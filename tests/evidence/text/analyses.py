"""docs/results/analyses.md."""

from collections.abc import Iterator
from statistics import fmean

from evidence.rows import assignments, rows_so_far
from tests.evidence.text.comparison import RESULTS


def stated() -> Iterator[str]:
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
