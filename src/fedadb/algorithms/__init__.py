"""The registry of algorithms: the only list of them, in the order of the paper's tables."""

from typing import Any

from fedadb.algorithms.fedacg import FedACG
from fedadb.algorithms.fedadb import FedADB
from fedadb.algorithms.fedasam import FedASAM
from fedadb.algorithms.fedavg import FedAvg
from fedadb.algorithms.fedcog import FedCOG
from fedadb.algorithms.feddecorr import FedDecorr
from fedadb.algorithms.feddyn import FedDyn
from fedadb.algorithms.fedexp import FedExP
from fedadb.algorithms.fedgela import FedGELA
from fedadb.algorithms.fedlmd import FedLMD
from fedadb.algorithms.fedntd import FedNTD
from fedadb.algorithms.fedprox import FedProx
from fedadb.algorithms.fedrod import FedRoD
from fedadb.algorithms.fedsol import FedSOL
from fedadb.algorithms.fedvls import FedVLS
from fedadb.algorithms.scaffold import SCAFFOLD
from fedadb.core.algorithm import Algorithm

ALGORITHMS: dict[str, type[Algorithm[Any, Any, Any, Any]]] = {
    algorithm.__name__.lower(): algorithm
    for algorithm in (
        FedAvg,
        FedDyn,
        FedASAM,
        FedNTD,
        FedGELA,
        FedExP,
        FedLMD,
        FedDecorr,
        FedACG,
        FedSOL,
        FedADB,
        FedProx,
        SCAFFOLD,
        FedRoD,
        FedVLS,
        FedCOG,
    )
}
