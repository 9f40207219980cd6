"""The usual loop of research code: DataLoader, one copy of the model per client, torch.optim."""

import copy

import torch
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.speed.workload import Clock, Workload, accuracy, normalised, report, train


def main() -> None:
    work = Workload.from_environment()
    x, y, test_x, test_y = work.data()
    clients = [
        TensorDataset(normalised(x[work.rows_of(k)]), torch.as_tensor(y[work.rows_of(k)]))
        for k in range(work.clients)
    ]
    test = TensorDataset(normalised(test_x), torch.as_tensor(test_y))
    f = work.module()
    clock, reached = Clock(), 0.0
    for t in range(work.rounds):
        states = []
        for k in work.chosen(t):
            local = copy.deepcopy(f)
            train(local, clients[k], work)
            states.append(local.state_dict())
        f.load_state_dict({n: sum(s[n] for s in states) / len(states) for n in states[0]})
        reached = accuracy(f, iter(DataLoader(test, batch_size=work.batch)))
        clock.tick()
    report(clock.seconds, reached)


if __name__ == "__main__":
    main()
