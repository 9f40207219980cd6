import pytest
import torch

from fedadb.core.transform import AsIs, Bounded, Transform, crop, cut_out, flip, zoom_in


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(n: int = 64, side: int = 32) -> torch.Tensor:
    return torch.randint(256, (n, 3, side, side), generator=generator(9), dtype=torch.uint8)


def test_plain_is_normalisation() -> None:
    x = images(4)
    transform = Transform(mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7), pad=4, flip=True, cutout=16)
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (transform.mean, transform.std))
    torch.testing.assert_close(transform.normalise(x), (x / 255 - mean) / std)


def test_a_crop_is_a_window_of_the_padded_image() -> None:
    x = images(40, side=8)[..., :6]
    y = crop(x, 2, "constant", generator())
    padded = torch.nn.functional.pad(x, [2] * 4)
    offsets = set()
    for i in range(40):
        found = [
            (top, left)
            for top in range(5)
            for left in range(5)
            if torch.equal(padded[i, :, top : top + 8, left : left + 6], y[i])
        ]
        assert len(found) == 1
        offsets.add(found[0])
    assert len(offsets) > 10


@pytest.mark.parametrize("mode", ["constant", "reflect"])
def test_no_images_are_augmented_to_none(mode: str) -> None:
    transform = Transform((0.5,) * 3, (0.5,) * 3, pad=4, pad_mode=mode, flip=True, cutout=16)
    assert transform.augment(images(0), generator()).shape == (0, 3, 32, 32)


def test_reflection_mirrors_the_border() -> None:
    x = torch.arange(16, dtype=torch.uint8).view(1, 1, 4, 4)
    windows = {tuple(crop(x, 1, "reflect", generator(s)).flatten().tolist()) for s in range(40)}
    mirrored = torch.nn.functional.pad(x.float(), [1] * 4, mode="reflect")
    assert tuple(mirrored[0, 0, :4, :4].flatten().int().tolist()) in windows
    assert len(windows) == 9


def test_half_of_the_images_flip() -> None:
    x = images(200, side=4)
    y = flip(x, generator())
    flipped = [torch.equal(a.flip(-1), b) for a, b in zip(x, y, strict=True)]
    kept = [torch.equal(a, b) for a, b in zip(x, y, strict=True)]
    assert all(f != k for f, k in zip(flipped, kept, strict=True))
    assert 70 < sum(flipped) < 130


def test_cutout_erases_one_clipped_square() -> None:
    y = cut_out(-torch.ones(500, 3, 32, 32), 16, generator())
    assert torch.equal(y == 0, ~y.signbit())  # what is erased is 0, not −0
    erased = (y == 0).sum(dim=(1, 2, 3)) // 3
    assert erased.min() >= 64
    assert erased.max() == 256
    for mask in (y[:, 0] == 0)[:50]:
        rows, columns = mask.any(1).sum(), mask.any(0).sum()
        assert mask.sum() == rows * columns
        assert max(rows, columns) <= 16


def test_a_zoom_shows_a_window_of_the_image() -> None:
    """On a ramp from left to right and one from top to bottom, values tell places."""
    ramp = torch.arange(0, 224, dtype=torch.float32)
    x = torch.stack([ramp.expand(224, 224), ramp[:, None].expand(224, 224)]).expand(200, -1, -1, -1)
    y = zoom_in(x, 0.5, generator())
    assert y.shape == x.shape
    spans = []
    for axis in (0, 1):
        line = y[:, axis].mean(1 if axis == 0 else 2)  # constant across the other axis
        assert line.min() >= 0
        assert line.max() <= 223
        spans.append((line[:, 200] - line[:, 20]) / 180)  # a stretch of less than 1 is a zoom
    area, ratio = spans[0] * spans[1], spans[0] / spans[1]
    assert 0.48 < area.min() < 0.6 < 0.9 < area.max() < 1.02
    assert 0.74 < ratio.min() < 0.85 < 1.2 < ratio.max() < 1.35
    assert torch.equal(zoom_in(x, 1.0, generator()), zoom_in(x, 1.0, generator()))


def test_the_generator_decides_everything() -> None:
    x, half = images(8), (0.5,) * 3
    for transform in (
        Transform(half, half, pad=4, flip=True, cutout=16),
        Transform(half, half, zoom=0.3, pad=4, pad_mode="reflect"),
    ):
        one, same, other = (transform.augment(x, generator(seed)) for seed in (1, 1, 2))
        assert torch.equal(one, same)
        assert not torch.equal(one, other)


def test_bounds_are_the_range_of_each_value() -> None:
    x = torch.tensor([[[1.0, 5.0]], [[-2.0, 5.0]], [[0.1, 5.0]]])
    bounds = Bounded.around(x)
    assert bounds == Bounded(low=(-2.0, 5.0), high=(1.0, 5.0))
    domain = bounds.domain((1, 2))
    assert torch.equal(domain.project(torch.full((3, 1, 2), 9.0)), torch.tensor([[[1.0, 5.0]]] * 3))
    assert torch.equal(bounds.normalise(x), x)
    assert torch.equal(bounds.augment(x, generator()), x)


def test_bytes_represent_constants_too() -> None:
    """A constant feature has no range to divide by."""
    domain = Bounded(low=(-1.0, 5.0), high=(1.0, 5.0)).domain((2,))
    x = torch.tensor([[-1.0, 5.0], [1.0, 5.0]])
    assert torch.equal(domain.dequantise(domain.quantise(x)), x)


def test_tensors_as_they_are_have_no_bounds() -> None:
    assert torch.isinf(AsIs().domain((3,)).high)
