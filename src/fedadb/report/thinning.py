"""Fewer and shorter numbers, which keep the page small."""


def thin(n: int, most: int) -> list[int]:
    """At most `most` of 0, …, n − 1, evenly spaced, including the first and the last."""
    if n <= most:
        return list(range(n))
    return sorted({round(i * (n - 1) / (most - 1)) for i in range(most)})


def rounded(value: float | None) -> float | None:
    """The value with four significant digits."""
    return None if value is None else float(f"{value:.4g}")
