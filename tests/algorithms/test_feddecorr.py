import pytest
import torch

from fedadb.algorithms.feddecorr import correlation


def test_by_hand() -> None:
    assert correlation(torch.tensor([[1.0, 1], [-1, -1]])).item() == pytest.approx(0.5)
    h = torch.tensor([[1.0, 2], [2, 1], [3, 5], [4, 4]])
    assert torch.corrcoef(h.T)[0, 1].item() == pytest.approx(0.7071, abs=1e-3)
    assert correlation(h).item() == pytest.approx(1.125, rel=1e-3)


def test_noise_is_never_quite_uncorrelated() -> None:
    h = torch.randn(128, 512, generator=torch.Generator().manual_seed(0))
    assert correlation(h).item() == pytest.approx(127 / 128, abs=0.02)


def test_scale_shift_sign_and_order_of_columns_do_not_matter() -> None:
    h = torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
    value = correlation(h)
    signs = torch.tensor([1.0, -1, 3, 0.5, -2])
    torch.testing.assert_close(correlation(h * signs + 7), value, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(correlation(h[:, [3, 1, 4, 0, 2]]), value)


def test_dead_units_single_rows_and_single_features_count_for_nothing() -> None:
    h = torch.randn(20, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    dead = torch.cat([h, torch.full((20, 1), 2.0)], dim=1)
    torch.testing.assert_close(correlation(dead), correlation(h) / 2)
    (g,) = torch.autograd.grad(correlation(dead), h)
    assert g.isfinite().all()
    assert correlation(h[:1]).item() == 0
    assert correlation(h[:, :1]).item() == 0
