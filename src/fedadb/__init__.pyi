"""Everything that `import fedadb` exports: the only list, read by type checkers and at run time.

`__init__.py` imports a name from the module given here when the name is first used.
"""

from fedadb.algorithms.fedacg import FedACG as FedACG
from fedadb.algorithms.fedadb import FedADB as FedADB
from fedadb.algorithms.fedasam import FedASAM as FedASAM
from fedadb.algorithms.fedavg import FedAvg as FedAvg
from fedadb.algorithms.feddecorr import FedDecorr as FedDecorr
from fedadb.algorithms.feddyn import FedDyn as FedDyn
from fedadb.algorithms.fedexp import FedExP as FedExP
from fedadb.algorithms.fedgela import FedGELA as FedGELA
from fedadb.algorithms.fedlmd import FedLMD as FedLMD
from fedadb.algorithms.fedntd import FedNTD as FedNTD
from fedadb.algorithms.fedprox import FedProx as FedProx
from fedadb.algorithms.fedsol import FedSOL as FedSOL
from fedadb.core.algorithm import Algorithm as Algorithm
from fedadb.core.algorithm import Context as Context
from fedadb.core.algorithm import Reply as Reply
from fedadb.core.algorithm import Round as Round
from fedadb.core.algorithm import Weights as Weights
from fedadb.core.algorithm import average as average
from fedadb.core.data import Batch as Batch
from fedadb.core.data import Examples as Examples
from fedadb.core.data import LocalPlan as LocalPlan
from fedadb.core.data import Shard as Shard
from fedadb.core.errors import BadInput as BadInput
from fedadb.core.errors import Fault as Fault
from fedadb.core.model import Domain as Domain
from fedadb.core.model import Model as Model
from fedadb.core.model import assemble as assemble
from fedadb.core.stream import Stream as Stream
from fedadb.core.transform import AsIs as AsIs
from fedadb.core.transform import Bounded as Bounded
from fedadb.core.transform import Transform as Transform
from fedadb.core.vector import Vector as Vector
from fedadb.datasets.tensors import Data as Data
from fedadb.engine.cohorts import OneByOne as OneByOne
from fedadb.engine.evaluate import evaluate as evaluate
from fedadb.engine.federate import Snapshot as Snapshot
from fedadb.engine.federate import federate as federate
from fedadb.engine.local import Learner as Learner
from fedadb.experiment.config import Experiment as Experiment
from fedadb.experiment.run import History as History
from fedadb.experiment.run import run as run
from fedadb.experiment.settings import Engine as Engine
from fedadb.experiment.settings import Federation as Federation
from fedadb.models.cnn import CNN as CNN
from fedadb.models.inception import Inception as Inception
from fedadb.models.lenet import LeNet as LeNet
from fedadb.models.mlp import MLP as MLP
from fedadb.models.resnet import ResNet18 as ResNet18
from fedadb.partition.dirichlet import Dirichlet as Dirichlet
from fedadb.partition.domains import ByDomain as ByDomain
from fedadb.partition.file import File as File
from fedadb.partition.iid import Iid as Iid
from fedadb.partition.shards import Shards as Shards

__version__: str
