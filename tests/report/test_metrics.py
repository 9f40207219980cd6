import subprocess
import sys

import pytest

from fedadb.report.statistics import (
    best_rounds,
    ewma,
    forgetting,
    interval,
    last_rounds,
    mean_curve,
    over_seeds,
    ratios,
    rounds_to,
    targets,
)


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


def test_the_last_rounds() -> None:
    assert last_rounds([0.0] * 5 + [0.2] * 5 + [0.4] * 5) == pytest.approx(0.3)
    assert last_rounds([0.5, 0.7]) == pytest.approx(0.6)


def test_deviation_over_seeds_is_the_population_s() -> None:
    """Deviations from 0.5 are -.1, 0, .1: √(.02 / 3)."""
    assert over_seeds([0.4, 0.5, 0.6]) == pytest.approx((0.5, 0.0816497, 3))
    assert over_seeds([0.4]) == (0.4, 0.0, 1)


def test_curves_over_seeds_go_as_far_as_all_of_them() -> None:
    assert mean_curve([[0.2, 0.4, 0.9], [0.4, 0.8]]) == pytest.approx([0.3, 0.6])


def test_the_interval_is_student_s() -> None:
    """Three seeds .4, .5, .6: s = .1, 4.303 · .1 / √3 = .24843; two: 12.706 · s / √2."""
    assert interval([[0.4], [0.5], [0.6]]) == pytest.approx([0.24843], abs=1e-5)
    assert interval([[0.4], [0.6]]) == pytest.approx([12.706 * 0.1414214 / 2**0.5], abs=1e-5)
    assert interval([[0.4, 0.5]]) == [0, 0]


def test_targets_are_whole_per_cents_of_the_best() -> None:
    """Of 93.5 %, as the paper's on SVHN: 42.1, 60.8 and 79.5."""
    assert targets(0.935) == [0.42, 0.61, 0.79]
    assert targets(0.94) == [0.42, 0.61, 0.8]


def test_ratios_count_failures_and_leave_them_out() -> None:
    found = ratios([20, 90, None], [10, 30, 60])
    assert found == (2.5, 2.5, 1)
    assert ratios([None], [3]) == (None, None, 1)
    assert ratios([10, 20, 90], [10, 10, 10]) == (4, 2, 0)


def test_reports_need_no_torch() -> None:
    modules = "fedadb.cli, fedadb.report.write, fedadb.report.watch"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
