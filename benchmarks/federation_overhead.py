"""The time that a round takes beyond its training if the clients are sites behind TLS.

    python benchmarks/federation_overhead.py [--rounds 8] [--sites 2]

Compares sites in processes of their own with the same experiment in one process, one client after
the other. With fewer cores than sites, the sites compete for them, and the difference is an upper
bound.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np

from fedadb.deploy import keys
from fedadb.deploy.ports import free_port
from fedadb.deploy.server import start_server
from fedadb.experiment.build import build_data
from fedadb.experiment.config import Experiment
from fedadb.experiment.run import run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--sites", type=int, default=2)
    options = parser.parse_args()
    e = Experiment.read(
        {
            "rounds": options.rounds,
            "algorithm": "fedavg",
            "local": {"epochs": 1},
            "federation": {"clients": options.sites, "participation": 1.0, "partition": "iid"},
            "engine": {"workers": 1},
        }
    )
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        simulated = [record["seconds"] for record in run(e, directory / "simulated").rounds]
        federated = train_with_sites(e, directory, free_port())
    one, other = median(simulated[1:]), median(federated[1:])
    print(f"LeNet, FedAvg, {options.sites} sites, {options.rounds} rounds")
    print("Seconds per round; medians without the first round")
    print(f"in one process       {one:6.2f}")
    print(f"sites behind TLS     {other:6.2f} ({min(federated):.2f} to {max(federated):.2f})")
    print(f"overhead             {other - one:6.2f}")


def train_with_sites(e: Experiment, directory: Path, port: int) -> list[float]:
    """The seconds of each round."""
    server, file = directory / "server", directory / "experiment.toml"
    keys.make_server_keys(server, ["localhost"], days=1)
    file.write_text(e.toml())
    sites = []
    for k, shard in enumerate(build_data(e).shards):
        site = directory / f"site-{k}"
        keys.make_site_keys(site)
        (server / keys.SITES / f"site-{k}.pub").write_bytes((site / keys.SITE_PUBLIC).read_bytes())
        (site / keys.CA).write_bytes((server / keys.CA).read_bytes())
        x, y = shard.examples.x[shard.rows].permute(0, 2, 3, 1).numpy(), shard.labels.numpy()
        np.savez(site / "data.npz", x_train=x, y_train=y, x_test=x[:20], y_test=y[:20])
        command = [sys.executable, "-m", "fedadb", "deploy", "site", str(site), str(file)]
        command += ["--server", f"localhost:{port}", "--data", f"npz:{site / 'data.npz'}"]
        with (directory / f"site-{k}.log").open("wb") as log:
            sites.append(subprocess.Popen(command, stdout=log, stderr=log))
    try:
        with start_server(server, "127.0.0.1", port) as running:
            out = directory / "federated"
            number = running.submit(e, out)
            return [r["seconds"] for r in running.follow(number, out, e.rounds, 0, print)]
    finally:
        for process in sites:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
