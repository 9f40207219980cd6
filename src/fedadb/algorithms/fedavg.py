"""FedAvg: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized
Data", AISTATS 2017, arXiv:1602.05629.
"""

from dataclasses import dataclass

from fedadb.core.algorithm import Algorithm


@dataclass(frozen=True)
class FedAvg(Algorithm):
    """Clients run SGD on their own loss; the server averages weights by number of rows.

    These are the defaults of `Algorithm`.
    """
