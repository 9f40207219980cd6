"""Everything that reads from outside, each with valid inputs to start from.

A reader takes bytes and a directory of its own. It returns, or refuses the input as a command
does: by BadInput, Fault or OSError, which end in one sentence.
"""

from storm.readers import data, experiments, federations, protection, runs
from storm.readers.reader import Reader

READERS: dict[str, Reader] = {
    **experiments.READERS,
    **runs.READERS,
    **data.READERS,
    **federations.READERS,
    **protection.READERS,
}
