"""Why a site refuses a request: a code and a sentence that contain none of the site's data.

The reason of Flower's error is all that the server learns. The full sentence, which may name files
of the site, stays in the site's own log.
"""

import logging
import re
from typing import NamedTuple

from flwr.app import Error, Message

from fedadb.core.errors import BadInput, Fault
from fedadb.deploy.messages import END, EVALUATE, KEY, QUERY, ROSTER, TRAIN

LOG = logging.getLogger("fedadb.site")  # of this site; nothing of it travels
RAISED = 2  # Flower's error code for a handler that raised
OTHER_VERSION = "other-version"
OTHER_EXPERIMENT = "other-experiment"
OTHER_APPLICATION = "other-application"
NOT_ALLOWED = "not-allowed"
BAD_REQUEST = "bad-request"
NO_DATA = "no-data"
BAD_DATA = "bad-data"
NO_TEST_IMAGES = "no-test-images"
OUT_OF_RANGE = "out-of-range"
MASK_USED = "mask-used"
FAILED = "failed"

SENTENCES = {
    OTHER_VERSION: "the site has another version of fedadb",
    OTHER_EXPERIMENT: "the site has another experiment",
    OTHER_APPLICATION: "the site accepts another application only",
    NOT_ALLOWED: "the site's own experiment does not allow this request; its log says why",
    BAD_REQUEST: "the site cannot read this request; its log says why",
    NO_DATA: "the site has no images; its log says more",
    BAD_DATA: "the site's images cannot be used; its log says why",
    NO_TEST_IMAGES: "the site has no test images of its own",
    OUT_OF_RANGE: "a weight changed by more than deployment.secure_range; its log says which",
    MASK_USED: "the site cannot mask its reply a second time",
    FAILED: "the site failed; its log says why",
}
# Waiting does not help: somebody must change the experiment, the version or the data first. Masks
# are new in the server's next attempt.
FINAL = frozenset(SENTENCES) - {MASK_USED, FAILED}


class Refused(NamedTuple):
    """A refusal as it travels."""

    code: str
    sentence: str


class Refusal(BadInput):
    """The site refuses the request.

    Args:
        code: One of the codes above.
        sentence: Says why, for the site's own log.
        travels: Whether the sentence contains none of the site's data, so that the server may
            learn it; otherwise the server learns the code's own sentence.
    """

    def __init__(self, code: str, sentence: str, travels: bool = False) -> None:
        super().__init__(sentence)
        self.code, self.there = code, sentence if travels else SENTENCES[code]


def not_allowed(sentence: str) -> Refusal:
    """The refusal of what the site's own experiment or roster does not allow."""
    return Refusal(NOT_ALLOWED, sentence, travels=True)


def to_reason(error: Exception) -> str:
    """The reason of Flower's error, without any data of the site."""
    if isinstance(error, Refusal):
        return f"fedadb:{error.code}: {error.there}"
    # The name of an exception's class is part of a program, not of the data.
    return f"fedadb:{FAILED}: {SENTENCES[FAILED]} ({type(error).__name__})"


def answer(message: Message, error: Exception) -> Message:
    """The answer to a message that could not be handled; the full sentence goes to the log."""
    expected = isinstance(error, (BadInput, Fault))
    LOG.error("%s: %s", describe(message), error, exc_info=None if expected else error)
    return Message(Error(RAISED, to_reason(error)), reply_to=message)


def describe(message: Message) -> str:
    """What a message asks for, in a few words for the log."""
    kind, group = message.metadata.message_type, message.metadata.group_id
    round = group if group.isascii() and group.isdigit() and len(group) < 10 else "?"
    what = {
        QUERY: "introduction",
        KEY: "key of the run",
        ROSTER: "keys of all sites",
        END: "end of the run",
        TRAIN: f"round {round}",
        EVALUATE: "evaluation",
    }
    return what.get(kind, "a message of an unknown type")


def parse(reason: str) -> Refused:
    """The code and the sentence of a Flower error's reason; any other text has the code `failed`.

    The sentence comes from a site. It may be anything, so it is cleaned before it is shown.
    """
    match = re.fullmatch(r"fedadb:([a-z-]+): (.*)", reason, re.DOTALL)
    if match is None or match[1] not in SENTENCES:
        return Refused(FAILED, reason)
    return Refused(match[1], match[2])
