"""Apple's pfl, under torchrun with one process per core, as its documentation advises."""

import itertools
import logging
from typing import Any

import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops.pytorch_ops import get_default_device
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

from benchmarks.speed.workload import Clock, Workload, normalised, report


class Net(nn.Module):
    def __init__(self, f: nn.Module) -> None:
        super().__init__()
        self.f = f

    def loss(self, x: Tensor, y: Tensor, eval: bool = False) -> Tensor:
        return F.cross_entropy(self.f(x), y.long())

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor, eval: bool = False) -> dict[str, Any]:
        hits = int((self.f(x).argmax(1) == y).sum())
        return {"accuracy": Weighted(hits, len(y))}


class Shuffled(Dataset):
    """Shuffles each epoch, as the other simulators here do."""

    def iter(self, batch_size: int | None) -> Any:
        x, y = self.raw_data
        order = torch.randperm(len(y))
        for which in torch.split(order, batch_size or len(y)):
            yield x[which], y[which]


def main() -> None:
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    work = Workload.from_environment()
    x, y, test_x, test_y = work.data()
    users = {
        k: (normalised(x[work.rows_of(k)]), torch.as_tensor(y[work.rows_of(k)]))
        for k in range(work.clients)
    }
    rounds = (k for t in itertools.count() for k in work.chosen(t))
    train = FederatedDataset(
        lambda k: Shuffled(raw_data=users[k], user_id=str(k)), lambda: next(rounds)
    )
    test = Dataset(raw_data=(normalised(test_x), torch.as_tensor(test_y)))
    net = Net(work.module()).to(get_default_device())
    model = PyTorchModel(
        net,
        local_optimizer_create=lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=work.momentum),
        central_optimizer=torch.optim.SGD(net.parameters(), 1.0),
    )
    clock = Clock()
    reached: list[float] = []

    class Evaluate(TrainingProcessCallback):
        """Like pfl's own central evaluation, but not before the first round."""

        def after_central_iteration(
            self, aggregate_metrics: Metrics, model: Any, *, central_iteration: int
        ) -> tuple[bool, Metrics]:
            metrics = model.evaluate(test, lambda name: name, NNEvalHyperParams(work.batch))
            reached.append(float(dict(metrics)["accuracy"].overall_value))
            clock.tick()
            return False, Metrics()

    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=work.rounds,
            evaluation_frequency=work.rounds + 1,
            train_cohort_size=work.sampled,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(train, train),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_batch_size=work.batch,
            local_num_epochs=work.epochs,
            local_learning_rate=work.lr,
        ),
        model_eval_params=NNEvalHyperParams(work.batch),
        callbacks=[Evaluate()],
    )
    if not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0:
        report(clock.seconds, reached[-1])


if __name__ == "__main__":
    main()
