"""The commands of the server's processes, and the configuration of Flower's command line."""

import sys
from pathlib import Path

import tomli_w

from fedadb.deploy import keys
from fedadb.deploy.accepted_sites import ACCEPTED, DATABASE
from fedadb.deploy.processes import flower_command
from fedadb.storage.files import write_atomically

SUPERLINK = "fedadb"  # the SuperLink's name in the configuration of Flower's command line


def configure_flower(directory: Path, address: str) -> Path:
    """Write the configuration of Flower's command line; returns its directory."""
    flower = directory / "flower"
    flower.mkdir(exist_ok=True, mode=0o700)
    superlink = {"address": address, "root-certificates": str(directory / keys.CA)}
    table = {"superlink": {"default": SUPERLINK, SUPERLINK: superlink}}
    write_atomically(flower / "config.toml", tomli_w.dumps(table).encode())
    return flower


def superlink_command(directory: Path, port: int) -> list[str]:
    """Start the SuperLink for this machine alone."""
    database = directory / DATABASE
    database.touch(mode=0o600)
    database.chmod(0o600)
    return [
        *(flower_command("flower-superlink"), "--host", "127.0.0.1", "--port", str(port)),
        *("--ssl-ca-certfile", str(directory / keys.CA)),
        *("--ssl-certfile", str(directory / keys.SUPERLINK)),
        *("--ssl-keyfile", str(directory / keys.SUPERLINK_KEY)),
        *("--database", str(database), "--enable-supernode-auth", "--isolation", "process"),
        *("--superexec-auth-secret-file", str(directory / keys.SECRET)),
        "--disable-runtime-dependency-installation",
    ]


def proxy_command(directory: Path, address: str, host: str, port: int) -> list[str]:
    """Start the proxy that publishes the SuperLink's address to the sites."""
    files = [str(directory / name) for name in (keys.CA, keys.SERVER, keys.SERVER_KEY)]
    accepted = ["--sites", str(directory / ACCEPTED)]
    return module_command("fedadb.deploy.proxy", host, str(port), address, *files, *accepted)


def module_command(module: str, *words: str) -> list[str]:
    """Start a module of this package."""
    # -P: nothing is imported from the current directory, where others may be allowed to write.
    return [sys.executable, "-P", "-m", module, *words]
