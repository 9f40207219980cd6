"""Flower's simulation on Ray; each node is one client."""

import logging
import time
from functools import cache
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.speed.workload import Clock, Workload, accuracy, normalised, report, train

client = ClientApp()
server = ServerApp()
result: dict[str, Any] = {}


@cache
def data() -> tuple[np.ndarray, ...]:
    return Workload.from_environment().data()


@client.train()
def train_client(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    work = Workload.from_environment()
    x, y, _, _ = data()
    rows = work.rows_of(int(context.node_config["partition-id"]))
    local = TensorDataset(normalised(x[rows]), torch.as_tensor(y[rows]))
    f = work.module()
    f.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    train(f, local, work)
    content = RecordDict(
        {
            "arrays": ArrayRecord(f.state_dict()),
            "metrics": MetricRecord({"num-examples": work.rows}),
        }
    )
    return Message(content=content, reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    work = Workload.from_environment()
    _, _, test_x, test_y = data()
    test = TensorDataset(normalised(test_x), torch.as_tensor(test_y))
    while len(nodes := sorted(grid.get_node_ids())) < work.clients:
        time.sleep(0.1)
    f = work.module()
    clock = Clock()
    for t in range(work.rounds):
        arrays = ArrayRecord(f.state_dict())
        messages = [
            Message(RecordDict({"arrays": arrays}), dst_node_id=nodes[k], message_type="train")
            for k in work.chosen(t)
        ]
        replies = grid.send_and_receive(messages)
        states = [r.content.array_records["arrays"].to_torch_state_dict() for r in replies]
        f.load_state_dict({n: sum(s[n] for s in states) / len(states) for n in states[0]})
        result["accuracy"] = accuracy(f, iter(DataLoader(test, batch_size=work.batch)))
        clock.tick()
    result["seconds"] = clock.seconds


def start() -> None:
    logging.disable(logging.WARNING)
    run_simulation(
        server,
        client,
        num_supernodes=Workload.from_environment().clients,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    report(result["seconds"], result["accuracy"])


if __name__ == "__main__":
    from benchmarks.speed import peer_flower  # by its name, which Ray's workers can import

    peer_flower.start()
