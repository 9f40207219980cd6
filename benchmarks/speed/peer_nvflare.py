"""NVIDIA FLARE's simulator: its FedAvg recipe, with one process per client of a round.

FLARE would restart a hundred clients in turn, so there are as many sites as clients in a round, and
each round a site trains on the rows of another client. The first site evaluates each model that it
receives; FLARE's own examples do so on every site.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.speed.workload import Clock, Workload, accuracy, normalised, report, train


class Net(nn.Module):
    """FLARE's server creates the model from the name of this class."""

    def __init__(self) -> None:
        super().__init__()
        self.f = Workload.from_environment().module()

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.f(x)
        return output


def site() -> None:
    import nvflare.client as flare

    torch.set_num_threads(1)
    work = Workload.from_environment()
    x, y, test_x, test_y = work.data()
    test = TensorDataset(normalised(test_x), torch.as_tensor(test_y))
    f = Net()
    flare.init()
    site_number = int(flare.get_site_name().removeprefix("site-")) - 1
    clock: Clock | None = None
    while flare.is_running():
        sent = flare.receive()
        f.load_state_dict(sent.params)
        if site_number == 0:
            reached = accuracy(f, iter(DataLoader(test, batch_size=work.batch)))
            if clock:
                clock.tick()
                result = {"seconds": clock.seconds, "accuracy": reached}
                Path(os.environ["RESULT"]).write_text(json.dumps(result))
            clock = clock or Clock()
        rows = work.rows_of(work.chosen(sent.current_round)[site_number])
        local = TensorDataset(normalised(x[rows]), torch.as_tensor(y[rows]))
        train(f, local, work)
        flare.send(
            flare.FLModel(params=f.state_dict(), meta={"NUM_STEPS_CURRENT_ROUND": work.rows})
        )


def simulate() -> None:
    from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
    from nvflare.recipe import SimEnv

    work = Workload.from_environment()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RESULT"] = f"{folder}/result.json"
        recipe = FedAvgRecipe(
            name="speed",
            model={"class_path": "benchmarks.speed.peer_nvflare.Net", "args": {}},
            min_clients=work.sampled,
            num_rounds=work.rounds + 1,  # each round is measured when the next one starts
            train_script=__file__,
        )
        recipe.execute(SimEnv(num_clients=work.sampled, workspace_root=folder))
        result = json.loads(Path(os.environ["RESULT"]).read_text())
    report(result["seconds"], result["accuracy"])


if __name__ == "__main__":
    simulate() if "nvflare" not in sys.modules else site()
