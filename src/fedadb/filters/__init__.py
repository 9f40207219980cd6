"""The filters by name."""

from fedadb.core.filter import Filter
from fedadb.filters.clip import Clip
from fedadb.filters.norm_bound import NormBound

FILTERS: dict[str, type[Filter]] = {"clip": Clip, "norm_bound": NormBound}
