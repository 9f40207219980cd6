"""The filters by name."""

from fedadb.core.filter import Filter
from fedadb.filters.clip import Clip
from fedadb.filters.int8 import Int8
from fedadb.filters.norm_bound import NormBound
from fedadb.filters.top_k import TopK

FILTERS: dict[str, type[Filter]] = {
    "clip": Clip,
    "int8": Int8,
    "norm_bound": NormBound,
    "top_k": TopK,
}
