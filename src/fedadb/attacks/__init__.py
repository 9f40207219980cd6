"""The attacks by name."""

from fedadb.attacks.alie import ALIE
from fedadb.attacks.gaussian import Gaussian
from fedadb.attacks.ipm import IPM
from fedadb.attacks.label_flip import LabelFlip
from fedadb.attacks.scaled import Scaled
from fedadb.attacks.sign_flip import SignFlip
from fedadb.core.attack import Attack

ATTACKS: dict[str, type[Attack]] = {
    "sign_flip": SignFlip,
    "scaled": Scaled,
    "gaussian": Gaussian,
    "alie": ALIE,
    "ipm": IPM,
    "label_flip": LabelFlip,
}
