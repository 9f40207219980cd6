"""What the benchmarks compute; never how fast something is."""

from pathlib import Path

import pytest
from torch import nn

from benchmarks import breakdown, kernels, peak
from benchmarks.flops import forward_flops, step_flops
from benchmarks.speed.__main__ import Comparison, Turn, gflop_of_round, ratios
from benchmarks.speed.plot import plot
from benchmarks.speed.workload import Block, Workload, lenet
from fedadb.kernels.library import KernelsUnavailable, compiler

CONVOLUTIONS = (2 * 24 * 24 * 6 * 25, 2 * 8 * 8 * 16 * 6 * 25)  # of LeNet
LINEAR = 2 * (256 * 120 + 120 * 84 + 84 * 10)


@pytest.fixture
def cxx() -> None:
    try:
        compiler()
    except KernelsUnavailable as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_kernels_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["kernels"])
    with pytest.raises(SystemExit, match=r"cannot be measured: no C\+\+ compiler is installed$"):
        kernels.main()


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_a_round_is_measured_on_torch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(breakdown, "REPEATS", 1)
    breakdown.main()
    assert "total, in one process" in capsys.readouterr().out


def test_flops_of_a_forward_pass() -> None:
    assert forward_flops(lenet(), (1, 28, 28)) == sum(CONVOLUTIONS) + LINEAR == 563_280


def test_flops_of_a_step_have_no_gradient_of_the_images() -> None:
    first, second = CONVOLUTIONS
    assert step_flops(lenet(), (1, 28, 28)) == 2 * first + 3 * (second + LINEAR) == 1_517_040


def test_flops_of_a_step_include_both_paths_of_a_residual_block() -> None:
    f = nn.Sequential(nn.Conv2d(3, 2, 1), Block(2, 4, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    first = 2 * 8 * 8 * 3 * 2
    block = 2 * 4 * 4 * (9 * 2 * 4 + 9 * 4 * 4 + 2 * 4)  # two convolutions and the shortcut
    assert step_flops(f, (3, 8, 8)) == 2 * first + 3 * block


@pytest.mark.usefixtures("cxx")
def test_peak_loop_takes_every_step_of_every_sum() -> None:
    loop, sums = peak.library().multiply_add, peak.library().flops_per_step() // 2
    assert loop(1, 0.0, 3.0) == 3 * sums
    assert loop(60, 0.5, 0.5) == sums  # s ← s/2 + 1/2 approaches 1


@pytest.mark.usefixtures("cxx")
def test_peak_of_several_threads() -> None:
    assert peak.measure_peak(threads=2, repeats=2, steps=10) > 0


def test_flops_of_a_round_are_those_of_all_steps_and_of_the_evaluation() -> None:
    work = Workload(sampled=2, rows=30, epochs=4, test=7)
    expected = 2 * 30 * 4 * 1_517_040 + 7 * 563_280
    assert gflop_of_round(work) == pytest.approx(expected / 1e9)


COMPARISON = Comparison(
    gflop=6.0,
    turns={
        "fedadb": [Turn(0.3, 0.8), Turn(0.1, 0.8), Turn(0.2, 0.8)],
        "pfl": [Turn(2.0, 0.8)],
        "blazefl": [Turn(1.0, 0.8)],
        "floor": [Turn(0.4, float("nan"))],
    },
    peaks=[40.0, 60.0],
)


def test_ratios_take_the_median_turn_the_fastest_peer_and_the_highest_peak() -> None:
    assert ratios("lenet", COMPARISON) == pytest.approx(
        {
            "lenet against the floor": 2.0,
            "lenet against the fastest peer": 5.0,
            "lenet as a share of the peak": 0.5,  # 6 / 0.2 of 60 GFLOP/s
        }
    )


def test_ratios_without_a_peak() -> None:
    assert "lenet as a share of the peak" not in ratios("lenet", COMPARISON._replace(peaks=[]))


@pytest.mark.parametrize("peaks", [[60.0], []])
def test_plot_with_and_without_a_peak(peaks: list[float], tmp_path: Path) -> None:
    plot({"lenet": COMPARISON._replace(peaks=peaks).table()}, tmp_path / "speed.png")
    assert (tmp_path / "speed.png").read_bytes().startswith(b"\x89PNG")
