"""Compiles network.cpp for this machine, once, and loads it.

The library lies in the user's cache under a name that follows from the source, the compiler and the
processor. It has a plain C interface, because torch's C++ headers alone take most of a minute.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
from functools import cache
from pathlib import Path

import filelock
import pooch

from fedadb.core.errors import Fault
from fedadb.progress import Progress, no_progress

SOURCE = Path(__file__).with_name("network.cpp")
COMPILERS = ("c++", "g++", "clang++")
OPTIONS = ("-O3", "-march=native", "-std=c++17", "-shared", "-fPIC")


class NoCompiler(Fault):
    """The kernels cannot be built on this machine."""


@cache
def compiler() -> str:
    """The C++ compiler: that of the variable CXX, or the first that is installed."""
    for name in (os.environ.get("CXX"), *COMPILERS):
        if name and (found := shutil.which(name)):
            return found
    raise NoCompiler("no C++ compiler is installed")


@cache
def name() -> str:
    """The library's name: equal names compute equal bits."""
    parts = [SOURCE.read_text(), " ".join(OPTIONS), _version(compiler()), _processor()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def build(progress: Progress = no_progress) -> Path:
    """The compiled library; it is compiled if this has not happened before."""
    path = Path(pooch.os_cache("fedadb")) / f"kernels-{name()}.so"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    # Another process may be compiling it: wait for that.
    with filelock.FileLock(path.with_suffix(".lock")), progress("compiling", 1, "kernels") as done:
        if not path.exists():
            partial = path.with_suffix(f".{os.getpid()}.partial")
            command = [compiler(), *OPTIONS, str(SOURCE), "-o", str(partial)]
            try:
                subprocess.run(command, check=True, capture_output=True, text=True)
                partial.replace(path)
            except subprocess.CalledProcessError as error:
                first = (error.stderr.strip().splitlines() or ["no reason given"])[0]
                raise NoCompiler(f"{compiler()} cannot compile the kernels: {first}") from error
            finally:
                partial.unlink(missing_ok=True)
        done(1)
    return path


@cache
def library() -> ctypes.CDLL:
    """The loaded library."""
    loaded = ctypes.CDLL(str(build()))
    for function in ("fedadb_forward_work", "fedadb_backward_work"):
        getattr(loaded, function).restype = ctypes.c_size_t
    return loaded


def _version(path: str) -> str:
    found = subprocess.run([path, "--version"], check=True, capture_output=True, text=True)
    return found.stdout.partition("\n")[0]


def _processor() -> str:
    """The architecture and the instructions that the processor has."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    flags = [line for line in lines if line.startswith(("flags", "Features"))]
    return f"{platform.machine()} {flags[0] if flags else platform.processor()}"
