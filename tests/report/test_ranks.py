"""Average ranks, their tests and their figure."""

from pathlib import Path

import pytest
import scipy.stats
from matplotlib.text import Text

from fedadb.report.comparison import Comparison, arrange
from fedadb.report.labels import method_colours
from fedadb.report.rank_figure import draw_ranks
from fedadb.report.ranks import Ranks, critical_difference, friedman, rank_methods, rank_table
from fedadb.report.recorded_runs import collect_runs
from tests.report.synthetic_runs import keep_rounds, make_run

DATASETS = ("svhn", "organamnist", "digits")


def compare(directory: Path) -> Comparison:
    return arrange(collect_runs([directory]).runs)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """FedADB is first twice and ties with FedNTD once; FedAvg is last."""
    for dataset, tie in zip(DATASETS, (0.0, 0.0, 0.2), strict=True):
        for name, a in (("fedavg", 0.1), ("fedntd", 0.5 + tie), ("fedadb", 0.7)):
            make_run(tmp_path, [a] * 5, algorithm=name, dataset=dataset)
    return tmp_path


def test_ranks_by_hand(runs: Path) -> None:
    """FedADB 1, 1, 1.5; FedNTD 2, 2, 1.5; FedAvg 3, 3, 3."""
    table = rank_table(compare(runs))
    assert table is not None
    assert table.header == ["method", "average rank", "SVHN", "OrganAMNIST", "digits"]
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["FedADB", "1.17", "1", "1", "1.5"],
        ["FedNTD", "1.83", "2", "2", "1.5"],
        ["FedAvg", "3.00", "3", "3", "3"],
    ]
    assert "p = 0.06. " in table.notes[0]
    assert "Over 3 settings, no methods can be told apart." in table.notes[0]


def test_only_settings_that_all_methods_have_finished_count(runs: Path) -> None:
    keep_rounds(next(runs.glob("svhn-fedavg*")), 2)
    found, table = rank_methods(compare(runs)), rank_table(compare(runs))
    assert found is not None
    assert table is not None
    assert found.settings == ["OrganAMNIST", "digits"]
    assert "Only settings that all methods have finished count." in table.notes
    keep_rounds(next(runs.glob("digits-fedadb*")), 2)
    assert rank_methods(compare(runs)) is None
    assert rank_table(compare(runs)) is None


def test_friedman_s_test_is_scipy_s_and_takes_two_methods() -> None:
    ranks: list[list[float]] = [[1, 2, 3], [1.5, 1.5, 3], [2, 1, 3], [1, 3, 2]]
    expected = scipy.stats.friedmanchisquare(*zip(*ranks, strict=True)).pvalue
    assert friedman(ranks) == pytest.approx(expected)
    # One winner in four settings: χ² = ((4 − 6)² + (8 − 6)²) / (20 − 18) = 4.
    assert friedman([[1, 2]] * 4) == pytest.approx(0.0455, abs=1e-4)
    assert friedman([[1.5, 1.5]] * 4) == 1


def test_the_critical_difference_is_that_of_demsar_s_example() -> None:
    """Four classifiers on 14 datasets: q = 2.569, CD = 2.569 √(4 · 5 / (6 · 14)) = 1.25."""
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)
    assert critical_difference(2, 4) == pytest.approx(1.96 / 2, abs=0.001)


def test_groups_are_the_largest_that_are_not_distinguishable() -> None:
    ranks = Ranks([], {"a": [1.0], "b": [2.0], "c": [3.0], "d": [5.5]}, 0.01, critical=1.5)
    assert ranks.groups == [["a", "b"], ["b", "c"]]
    assert ranks._replace(critical=2.5).groups == [["a", "b", "c"], ["c", "d"]]
    assert ranks._replace(critical=0.5).groups == []
    # If all methods may be equal, no pair is compared.
    assert ranks._replace(p=0.06).groups == [["a", "b", "c", "d"]]


@pytest.mark.parametrize("methods", [2, 11])
def test_no_label_of_the_figure_overlaps_another_or_its_edge(methods: int) -> None:
    names = [f"Fed{'Decorrelated' if k % 3 else 'AD'}{k}" for k in range(methods)]
    ranks = Ranks(["s", "t"], {name: [1.0 + k] for k, name in enumerate(names)}, 0.01, 1.386)
    figure = draw_ranks(ranks, method_colours(names))
    figure.canvas.draw()
    texts = [text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text()]
    assert {f"{name}  {1 + k:.2f}" for k, name in enumerate(names)} <= {
        text.get_text() for text in texts
    }
    boxes = [text.get_window_extent() for text in texts]
    for i, box in enumerate(boxes):
        assert figure.bbox.fully_containsx(box.x0)
        assert figure.bbox.fully_containsx(box.x1)
        assert figure.bbox.fully_containsy(box.y0)
        assert not any(box.overlaps(other) for other in boxes[:i])
