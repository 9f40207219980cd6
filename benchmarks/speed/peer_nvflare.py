"""NVIDIA FLARE's simulator: its FedAvg recipe, a process for each client of a round.

A hundred clients would take turns in the processes and be started anew each time, so there are as
many sites as clients in a round, and a site trains each round on the rows of another client. The
first site evaluates each model that it is sent, as FLARE's own examples do on every site.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.speed.work import Clock, Work, accuracy, normalised, report, train


class Net(nn.Module):
    """FLARE's server builds its model from the name of a class."""

    def __init__(self) -> None:
        super().__init__()
        self.f = Work.given().module()

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.f(x)
        return output


def site() -> None:
    import nvflare.client as flare

    torch.set_num_threads(1)
    work = Work.given()
    x, y, test_x, test_y = work.data()
    test = TensorDataset(normalised(test_x), torch.as_tensor(test_y))
    f = Net()
    flare.init()
    which = int(flare.get_site_name().removeprefix("site-")) - 1
    clock: Clock | None = None
    while flare.is_running():
        sent = flare.receive()
        f.load_state_dict(sent.params)
        if which == 0:
            reached = accuracy(f, iter(DataLoader(test, batch_size=work.batch)))
            if clock:
                clock.tick()
                said = {"seconds": clock.seconds, "accuracy": reached}
                Path(os.environ["RESULT"]).write_text(json.dumps(said))
            clock = clock or Clock()
        rows = work.rows_of(work.chosen(sent.current_round)[which])
        held = TensorDataset(normalised(x[rows]), torch.as_tensor(y[rows]))
        train(f, held, work)
        flare.send(
            flare.FLModel(params=f.state_dict(), meta={"NUM_STEPS_CURRENT_ROUND": work.rows})
        )


def simulate() -> None:
    from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
    from nvflare.recipe import SimEnv

    work = Work.given()
    with tempfile.TemporaryDirectory() as place:
        os.environ["RESULT"] = f"{place}/result.json"
        recipe = FedAvgRecipe(
            name="speed",
            model={"class_path": "benchmarks.speed.peer_nvflare.Net", "args": {}},
            min_clients=work.sampled,
            num_rounds=work.rounds + 1,  # each is measured when the next begins
            train_script=__file__,
        )
        recipe.execute(SimEnv(num_clients=work.sampled, workspace_root=place))
        result = json.loads(Path(os.environ["RESULT"]).read_text())
    report(result["seconds"], result["accuracy"])


if __name__ == "__main__":
    simulate() if "nvflare" not in sys.modules else site()
