import subprocess
import sys

import pytest

from fedadb.report.statistics import best_rounds, ewma, forgetting, rounds_to


def test_best_rounds_are_any_rounds() -> None:
    assert best_rounds([0.1, 0.9, 0.2, 0.8, 0.3], n=2) == pytest.approx(0.85)
    assert best_rounds([0.5, 0.7]) == pytest.approx(0.6)


def test_smoothing_weighs_the_newest_by_a_fifth() -> None:
    assert ewma([10, 20, 40, 80]) == pytest.approx([10, 12, 17.6, 30.08])


def test_rounds_to_a_target_go_by_the_smoothed_curve() -> None:
    accuracy = [0.1, 0.2, 0.4, 0.8]
    assert rounds_to(accuracy, 0.1) == 1
    assert rounds_to(accuracy, 0.17) == 3
    assert rounds_to(accuracy, 0.5) is None


def test_forgetting_by_hand() -> None:
    """Class 0 was .8 and is .6, class 1 was .9 and is .7: (.2 + .2) / 2."""
    assert forgetting([[0.1, 0.9], [0.8, 0.2], [0.6, 0.7]]) == pytest.approx(0.2)
    assert forgetting([[0.5, None], [0.7, None]]) == pytest.approx(-0.2)


def test_reports_need_no_torch() -> None:
    code = "import fedadb.report.curves, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
