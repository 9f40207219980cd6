"""Tables as data. Cells hold numbers, which are printed only by `formats` and on the page."""

from typing import NamedTuple, TypeAlias

MISSING = "--"
RUNNING = "…"


class Number(NamedTuple):
    """A number, printed with a fixed number of decimals."""

    value: float
    decimals: int = 0
    unit: str = ""

    def __str__(self) -> str:
        return f"{self.value:.{self.decimals}f}{self.unit}"


class Score(NamedTuple):
    """A score over seeds, in per cent."""

    mean: float
    deviation: float | None = None  # None: there is one seed
    running: bool = False  # whether some of the runs are unfinished

    def __str__(self) -> str:
        deviation = "" if self.deviation is None else f" ± {self.deviation:.2f}"
        return f"{self.mean:.2f}{deviation}{f' {RUNNING}' if self.running else ''}"


class SettingValue(NamedTuple):
    """The number that a setting has."""

    value: float

    def __str__(self) -> str:
        return f"{self.value:g}"


class Difference(NamedTuple):
    """A mean difference in points, with the half-width of its interval."""

    mean: float
    half: float | None = None  # None: there is one pair, and no interval

    def __str__(self) -> str:
        if self.half is None:
            return _signed(self.mean)
        low, high = _signed(self.mean - self.half), _signed(self.mean + self.half)
        return f"{_signed(self.mean)} [{low}, {high}]"


def _signed(value: float) -> str:
    """The value with its sign and one decimal."""
    return f"{value:+z.1f}".replace("-", "−")


class RoundsToTarget(NamedTuple):
    """The rounds that a method needs to reach a target accuracy."""

    rounds: int | None  # None: the target is not reached
    ratio: float | None = None  # to the rounds of the reference method
    running: bool = False  # whether the target may still be reached

    def __str__(self) -> str:
        if self.rounds is None:
            return RUNNING if self.running else MISSING
        return f"{self.rounds}{'' if self.ratio is None else f' ({self.ratio:.1f}×)'}"


class PublishedRounds(NamedTuple):
    """The rounds that a method needs in the paper, to the paper's target in per cent."""

    rounds: int | None
    target: int

    def __str__(self) -> str:
        return f"{self.rounds or MISSING} to {self.target} %"


class RoundsDone(NamedTuple):
    """How many of the rounds are done."""

    done: int
    total: int

    def __str__(self) -> str:
        return str(self.done) if self.done == self.total else f"{self.done}/{self.total}"


class Traffic(NamedTuple):
    """What a client receives and sends per round, in kilobytes."""

    down: float
    up: float

    def __str__(self) -> str:
        return f"{self.down:.0f}/{self.up:.0f}"


# None: the value is missing.
Value: TypeAlias = (
    str
    | Number
    | Score
    | SettingValue
    | Difference
    | RoundsToTarget
    | PublishedRounds
    | RoundsDone
    | Traffic
    | None
)


class Cell(NamedTuple):
    value: Value
    best: bool = False  # whether it is the best of its column or row
    paper: Score | PublishedRounds | None = None  # the paper's value for the same setting

    @property
    def text(self) -> str:
        """The value as plain text, as in a terminal."""
        return MISSING if self.value is None else str(self.value)

    @property
    def number(self) -> float | None:
        """The number to sort by; None for text and missing values."""
        match self.value:
            case None | str():
                return None
            case value:
                return value[0]


class Table(NamedTuple):
    name: str  # of its files
    title: str
    header: list[str]
    rows: list[list[Cell]]
    notes: list[str]
