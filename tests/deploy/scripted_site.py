"""A site that goes wrong in another way each round, as a process of its own."""

import os
import signal
import sys
from pathlib import Path

import torch
from flwr.app import Context, Message

from fedadb.deploy import client_app, wire
from fedadb.deploy.site import Place, join
from fedadb.experiment.config import Experiment, load

good = client_app.app


def handle(message: Message, context: Context) -> Message:
    t = message.metadata.group_id
    if message.metadata.message_type != "train":
        return good(message, context)
    if t == "5":
        os.kill(os.getpid(), signal.SIGKILL)
    if t == "3":
        raise RuntimeError("the disk is full")
    answer = good(message, context)
    tensors = wire.tensors_of(answer.content)
    first = next(name for name in tensors if name.startswith("w/"))
    if t == "1":
        tensors[first] = tensors[first] * torch.nan
    if t == "2":
        tensors[first] = torch.zeros(3, 3)
    if t == "4":
        tensors = {"w/some.other.model": torch.zeros(2), "examples": tensors["examples"]}
    return Message(wire.content({}, wire.payload(tensors)), reply_to=message)


if __name__ == "__main__":
    directory, experiment, server, data = sys.argv[1:]
    client_app.app = handle  # type: ignore[assignment]
    join(Place(Path(directory), server, data), Experiment.read(load(Path(experiment))), print)
