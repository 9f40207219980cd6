import subprocess
import sys

import pytest

from fedadb.report.metrics import (
    best_rounds,
    ewma,
    forgetting,
    interval,
    last_rounds,
    mean_curve,
    paired_difference,
    picked_round,
    round_ratios,
    rounds_to,
    seed_statistics,
    t_quantile,
    targets,
)


def test_the_best_rounds_need_not_be_consecutive() -> None:
    assert best_rounds([0.1, 0.9, 0.2, 0.8, 0.3], n=2) == pytest.approx(0.85)
    assert best_rounds([0.5, 0.7]) == pytest.approx(0.6)


def test_smoothing_weighs_the_newest_value_by_a_fifth() -> None:
    assert ewma([10, 20, 40, 80]) == pytest.approx([10, 12, 17.6, 30.08])


def test_rounds_to_a_target_use_the_smoothed_curve() -> None:
    accuracy = [0.1, 0.2, 0.4, 0.8]
    assert rounds_to(accuracy, 0.1) == 1
    assert rounds_to(accuracy, 0.17) == 3
    assert rounds_to(accuracy, 0.5) is None


def test_forgetting_by_hand() -> None:
    """Class 0 falls from .8 to .6, class 1 from .9 to .7: (.2 + .2) / 2."""
    assert forgetting([[0.1, 0.9], [0.8, 0.2], [0.6, 0.7]]) == pytest.approx(0.2)
    assert forgetting([[0.5, None], [0.7, None]]) == pytest.approx(-0.2)


def test_forgetting_counts_classes_measured_in_the_last_round_and_before() -> None:
    """Class 0 falls from .8 to .6; class 1 is measured in the last round only, class 2 before."""
    assert forgetting([[0.8, None, 0.9], [0.6, 0.7, None]]) == pytest.approx(0.2)
    assert forgetting([[None, None], [0.6, 0.7]]) is None
    assert forgetting([[0.6, 0.7], [None, None]]) is None
    assert forgetting([[0.6, 0.7]]) is None


def test_the_mean_of_the_last_rounds() -> None:
    assert last_rounds([0.0] * 5 + [0.2] * 5 + [0.4] * 5) == pytest.approx(0.3)
    assert last_rounds([0.5, 0.7]) == pytest.approx(0.6)


def test_the_picked_round_is_the_first_of_highest_validation_accuracy() -> None:
    assert picked_round([0.1, 0.9, 0.4, 0.6], [0.2, 0.3, 0.5, 0.5]) == 0.4
    assert picked_round([0.1, 0.9], [0.2, None]) == 0.1
    assert picked_round([0.1, 0.9], [None, None]) is None


def test_differences_are_paired_by_seed() -> None:
    """.4 − .5, .7 − .6 and .9 − .6 are −.1, .1, .3: mean .1, s = .2, 4.30265 · .2 / √3."""
    ours, theirs = {0: 0.4, 1: 0.7, 2: 0.9, 5: 0.0}, {2: 0.6, 1: 0.6, 0: 0.5, 7: 1.0}
    assert paired_difference(ours, theirs) == pytest.approx((0.1, 0.496827, 3), abs=1e-6)
    assert paired_difference({0: 0.5, 1: 0.0}, {0: 0.25}) == (0.25, None, 1)
    assert paired_difference({0: 0.5}, {1: 0.5}) is None


def test_an_interval_is_above_zero_as_a_whole() -> None:
    """0.1 and 0.3 are 0.2 ± 1.27; 0.2 and 0.21 are 0.205 ± 0.064."""
    for first, second, above in ((0.1, 0.3, False), (0.2, 0.21, True), (-0.2, -0.21, False)):
        difference = paired_difference({0: first, 1: second}, {0: 0.0, 1: 0.0})
        assert difference is not None
        assert difference.above_zero == above
    one_seed = paired_difference({0: 1.0}, {0: 0.0})
    assert one_seed is not None
    assert not one_seed.above_zero


def test_the_deviation_over_seeds_is_the_population_s() -> None:
    """Deviations from 0.5 are -.1, 0, .1: √(.02 / 3)."""
    assert seed_statistics([0.4, 0.5, 0.6]) == pytest.approx((0.5, 0.0816497, 3))
    assert seed_statistics([0.4]) == (0.4, 0.0, 1)


def test_the_mean_curve_ends_with_the_shortest_one() -> None:
    assert mean_curve([[0.2, 0.4, 0.9], [0.4, 0.8]]) == pytest.approx([0.3, 0.6])


def test_the_interval_is_student_s() -> None:
    """Three seeds .4, .5, .6: s = .1, 4.30265 · .1 / √3 = .248414; two: 12.7062 · s / √2."""
    assert interval([[0.4], [0.5], [0.6]]) == pytest.approx([0.248414], abs=1e-5)
    assert interval([[0.4], [0.6]]) == pytest.approx([12.7062 * 0.1414214 / 2**0.5], abs=1e-5)
    assert interval([[0.4, 0.5]]) == [0, 0]


def test_student_s_t_does_not_end_at_ten_seeds() -> None:
    """The quantiles of printed tables, for 10, 11 and 31 seeds."""
    assert [round(t_quantile(n), 3) for n in (10, 11, 31)] == [2.262, 2.228, 2.042]
    curves = [[0.4 + 0.01 * k] for k in range(11)]  # s = .01 · √11
    assert interval(curves) == pytest.approx([2.228 * 0.01], abs=1e-5)


def test_targets_are_whole_percentages_of_the_best() -> None:
    """Of 93.5 %, as the paper's on SVHN: 42.1, 60.8 and 79.5."""
    assert targets(0.935) == [0.42, 0.61, 0.79]
    assert targets(0.94) == [0.42, 0.61, 0.8]


def test_ratios_count_missed_targets_and_leave_them_out() -> None:
    assert round_ratios([20, 90, None], [10, 30, 60]) == (2.5, 2.5, 1)
    assert round_ratios([None], [3]) == (None, None, 1)
    assert round_ratios([10, 20, 90], [10, 10, 10]) == (4, 2, 0)


def test_reports_need_neither_torch_nor_scipy_stats() -> None:
    modules = "fedadb.cli, fedadb.report.output, fedadb.report.watch"
    code = f"import sys, {modules}; sys.exit(len({{'torch', 'scipy.stats'}} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
