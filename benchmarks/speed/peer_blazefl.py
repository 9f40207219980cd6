"""BlazeFL, with one thread per core, as its documentation advises.

Its own FedAvg has no momentum, so clients train as in the other simulators. Averaging and
evaluation are BlazeFL's.
"""

import copy
import os
from typing import Any

import torch
from blazefl.contrib.fedavg import (
    FedAvgBaseServerHandler,
    FedAvgPartitionType,
    FedAvgThreadPoolClientTrainer,
    FedAvgUplinkPackage,
)
from blazefl.core import deserialize_model, serialize_model
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.speed.workload import Clock, Workload, normalised, report, train


class Models:
    def __init__(self, f: nn.Module) -> None:
        self.f = f

    def select_model(self, model_name: str) -> nn.Module:
        return copy.deepcopy(self.f)


class Data:
    """The rows of each client, and the test set."""

    def __init__(self, work: Workload) -> None:
        x, y, test_x, test_y = work.data()
        self.clients = [
            TensorDataset(normalised(x[work.rows_of(k)]), torch.as_tensor(y[work.rows_of(k)]))
            for k in range(work.clients)
        ]
        self.test = TensorDataset(normalised(test_x), torch.as_tensor(test_y))

    def get_dataset(self, type_: str, cid: int | None) -> TensorDataset:
        return self.test if cid is None else self.clients[cid]

    def get_dataloader(
        self, type_: str, cid: int | None, batch_size: int | None, generator: Any
    ) -> DataLoader:
        return DataLoader(self.get_dataset(type_, cid), batch_size=batch_size)


class Server(FedAvgBaseServerHandler):
    def sample_clients(self) -> list[int]:
        return Workload.from_environment().chosen(self.round)


class Trainer(FedAvgThreadPoolClientTrainer):
    def progress_fn(self, it: Any) -> Any:
        return it

    def worker(self, cid: int, device: str, payload: Any, stop_event: Any) -> FedAvgUplinkPackage:
        torch.set_num_threads(1)
        f = self.model_selector.select_model(self.model_name)
        deserialize_model(f, payload.model_parameters)
        data = self.dataset.get_dataset(FedAvgPartitionType.TRAIN, cid)
        train(f, data, Workload.from_environment())
        return FedAvgUplinkPackage(cid, serialize_model(f), len(data))


def main() -> None:
    work = Workload.from_environment()
    cores = len(os.sched_getaffinity(0))
    models, data = Models(work.module()), Data(work)
    server = Server(
        models,
        work.model,
        data,
        global_round=work.rounds,
        num_clients=work.clients,
        sample_ratio=work.sampled / work.clients,
        device="cpu",
        batch_size=work.batch,
        seed=0,
    )
    trainer = Trainer(
        models,
        work.model,
        data,
        device="cpu",
        num_clients=work.clients,
        epochs=work.epochs,
        batch_size=work.batch,
        lr=work.lr,
        seed=0,
        num_parallels=cores,
    )
    clock, reached = Clock(), 0.0
    while not server.is_stopped():
        trainer.local_process(server.downlink_package(), server.sample_clients())
        for package in trainer.uplink_package():
            server.load(package)
        torch.set_num_threads(cores)  # for the evaluation; clients have reduced it to one
        reached = server.get_summary()["server_acc"]
        clock.tick()
    report(clock.seconds, reached)


if __name__ == "__main__":
    main()
