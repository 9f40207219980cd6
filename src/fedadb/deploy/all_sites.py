"""Asks all sites of a run, of which none may be missing."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from flwr.app import RecordDict

from fedadb.core.errors import Fault
from fedadb.deploy.cohort import RETRY_SECONDS, describe, waits_for
from fedadb.deploy.delivery import NOT_CONNECTED, DeliveryState, NoReply, send_and_wait
from fedadb.deploy.messages import shown, tensors_in
from fedadb.deploy.participants import Participants
from fedadb.deploy.refusals import MASK_USED
from fedadb.deploy.secure_site import MASKED
from fedadb.secagg.fixed_point import Words

Answer = TypeVar("Answer")


class MaskUsed(Fault):
    """A site cannot answer in this attempt any more, because it has used its masks."""


def ask_all(
    sites: Participants,
    kind: str,
    what: str,
    content: Callable[[int], RecordDict],
    read: Callable[[RecordDict], Answer],
    on_status: Callable[[str], None] = lambda status: None,
    group: str = "",
) -> list[Answer]:
    """What all sites answer, in the order of the clients; a Fault that names those that do not.

    Sites that do not answer are asked for the same again. It never continues without them: the
    difference of two sums over different sites would be one site's update.

    Args:
        sites: The run's sites.
        kind: The type of the messages.
        what: What is asked for, to begin a sentence with.
        content: The content of the message to client k.
        read: Reads an answer, or raises a Fault.
        on_status: Called whenever a site answers, disconnects or reconnects.
        group: The group of the messages: the round, if they belong to one.
    """
    deployment, names = sites.experiment.deployment, sites.names
    answers: dict[int, Answer] = {}
    missing = dict.fromkeys(range(len(names)), NoReply(NOT_CONNECTED))
    for retry in range(deployment.retries + 1):
        if retry:
            time.sleep(RETRY_SECONDS)
        connected = sites.wait_for(
            list(missing), len(missing), lambda away: on_status(f"{what}: {waits_for(away)}")
        )
        node_of = {k: connected[names[k]] for k in missing if names[k] in connected}
        name_of = {node: names[k] for k, node in node_of.items()}
        away = [names[k] for k in missing if k not in node_of]
        replies = send_and_wait(
            sites.grid,
            {node: content(k) for k, node in node_of.items()},
            kind,
            group,
            deployment.deadline,
            deployment.reconnect,
            partial(_show, on_status, what, name_of, away),
        )
        for k, node in node_of.items():
            answer = _read(replies[node], read)
            if isinstance(answer, NoReply):
                missing[k] = answer
            else:
                answers[k] = answer
                del missing[k]
        if not missing:
            return [answers[k] for k in range(len(names))]
        if any(reply.code == MASK_USED or reply.final for reply in missing.values()):
            break
    reasons = "; ".join(f"{names[k]}: {reply.reason}" for k, reply in missing.items())
    error = MaskUsed if any(r.code == MASK_USED for r in missing.values()) else Fault
    raise error(
        f"{what}: secure aggregation needs all {len(names)} sites, but {len(missing)} did not "
        f"answer ({reasons})"
    )


def masked_words(reply: RecordDict, words: int) -> Words:
    """The masked words in a site's answer, or a Fault that says what is wrong with it."""
    tensors = tensors_in(reply)
    masked = tensors.get(MASKED)
    if masked is None or len(tensors) > 1:
        raise Fault(f"its answer must have one tensor, {MASKED}")
    if (masked.dtype, tuple(masked.shape)) != (torch.uint32, (words,)):
        raise Fault(
            f"{MASKED} is {masked.dtype} of shape {tuple(masked.shape)}; expected is torch.uint32 "
            f"of shape ({words},)"
        )
    return masked.numpy()


def add_words(answers: list[Words]) -> Words:
    """The sum of all sites' words, modulo 2³²."""
    total = np.zeros_like(answers[0])
    for words in answers:
        total += words
    return total


def _show(
    on_status: Callable[[str], None],
    what: str,
    name_of: Mapping[int, str],
    away: Sequence[str],
    state: DeliveryState,
) -> None:
    on_status(f"{what}: {describe(state, name_of, away)}")


def _read(reply: RecordDict | NoReply, read: Callable[[RecordDict], Answer]) -> Answer | NoReply:
    if isinstance(reply, NoReply):
        return reply
    try:
        return read(reply)
    except Fault as error:
        return NoReply(shown(error))
    except Exception as error:  # whatever a site sends, it must not stop the others
        return NoReply(f"its reply cannot be read: {type(error).__name__}")
