"""The site's command, changed so that it misbehaves in the rounds that a script names.

The script is a file `script.json` in the site's directory, such as {"1": "nan", "4": "hold"}. The
site reads it whenever it receives a message, so that a test can change it.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
from flwr.app import Context, Message
from flwr.supercore.retry import http_retry

from fedadb import cli
from fedadb.deploy import client_app, site
from fedadb.deploy.messages import make_content, tensor_record, tensors_in

SCRIPT = "script.json"
HOLDING = "holds the reply of round"

app = client_app.app


def action(directory: Path, t: str) -> str | None:
    path = directory / SCRIPT
    script: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    return script.get(t)


def handle(directory: Path, message: Message, context: Context) -> Message:
    t = message.metadata.group_id
    if message.metadata.message_type != "train":
        return app(message, context)
    if action(directory, t) == "hold":
        print(f"{HOLDING} {t}", flush=True)
        while action(directory, t) == "hold":
            time.sleep(0.1)
    fault = action(directory, t)
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "raise":
        raise RuntimeError("the disk is full")
    reply = app(message, context)
    if fault is None:
        return reply
    tensors = tensors_in(reply.content)
    first = next(name for name in tensors if name.startswith("upload/w/"))
    if fault == "nan":
        tensors[first] = tensors[first] * torch.nan
    elif fault == "shape":
        tensors[first] = torch.zeros(3, 3)
    elif fault == "names":
        tensors = {"upload/w/some.other.model": torch.zeros(2), "examples": tensors["examples"]}
    return Message(make_content({}, tensor_record(tensors)), reply_to=message)


def main() -> None:
    """Run `fedadb deploy site DIRECTORY …` with the scripted handler."""
    directory = Path(sys.argv[3])
    client_app.app = lambda message, context: handle(directory, message, context)  # type: ignore[assignment]
    # In seconds, so that a test does not wait long for the site after it started a server.
    http_retry.MAX_RETRY_DELAY = 1  # type: ignore[attr-defined]
    site.RETRY_SECONDS = 0.5
    cli.main()


if __name__ == "__main__":
    main()
