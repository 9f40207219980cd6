"""The filters by name."""

from fedadb.core.filter import Filter
from fedadb.filters.centred_clip import CentredClip
from fedadb.filters.clip import Clip
from fedadb.filters.dp import DP
from fedadb.filters.geometric_median import GeometricMedian
from fedadb.filters.int8 import Int8
from fedadb.filters.median import Median
from fedadb.filters.multi_krum import MultiKrum
from fedadb.filters.nnm import NNM
from fedadb.filters.norm_bound import NormBound
from fedadb.filters.top_k import TopK
from fedadb.filters.trimmed_mean import TrimmedMean

FILTERS: dict[str, type[Filter]] = {
    "clip": Clip,
    "norm_bound": NormBound,
    "median": Median,
    "trimmed_mean": TrimmedMean,
    "multi_krum": MultiKrum,
    "geometric_median": GeometricMedian,
    "centred_clip": CentredClip,
    "nnm": NNM,
    "int8": Int8,
    "top_k": TopK,
    "dp": DP,
}
