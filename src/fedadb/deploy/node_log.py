"""What a site's node makes of the logs of Flower and httpx: why it ended, in one sentence."""

import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Iterator

import httpx

from fedadb.core.errors import BadInput, Fault, Temporary

NOT_REGISTERED = ("[code: 2001]", "[code: 2004]")  # in Flower's log: the key is not known
UNAUTHORIZED = ("'401 ", " 401 ")  # in httpx's errors, and in its log of all requests


@contextlib.contextmanager
def explain_end(address: str, log: Callable[[str], None]) -> Iterator[None]:
    """Turn the ways in which Flower ends a node's process into one sentence each."""
    errors: list[str] = []
    flower = logging.getLogger("flwr")
    flower.handlers, flower.propagate = [_ErrorCollector(errors)], False
    requests = logging.getLogger("httpx")
    requests.handlers, requests.propagate = [_RefusalCollector(errors)], False
    requests.setLevel(logging.INFO)
    try:
        with _threads_end_quietly(errors):
            yield
    except KeyboardInterrupt:  # Flower raises it as well when the server refuses a request
        if not _is_unauthorized(errors):
            log("disconnected")
            return
    except SystemExit as error:
        if any(code in line for line in errors for code in NOT_REGISTERED):
            raise BadInput(
                f"{address} does not accept this site: its site.pub must be in the server's "
                "sites/, and no other process may use the same key"
            ) from error
        reason = " ".join(" ".join(errors).split()) or f"exit code {error.code}"
        raise Temporary(f"the connection to {address} failed: {reason}") from error
    if _is_unauthorized(errors):
        raise Fault(f"{address} no longer accepts this site's key")
    raise Temporary(f"the connection to {address} ended: {' '.join(errors)}")


@contextlib.contextmanager
def _threads_end_quietly(errors: list[str]) -> Iterator[None]:
    """Collect the refusal that ends Flower's thread of heartbeats, which would be a traceback."""
    previous = threading.excepthook

    def collect(ended: threading.ExceptHookArgs) -> None:
        if isinstance(ended.exc_value, httpx.HTTPError):
            errors.append(str(ended.exc_value))
        else:
            previous(ended)

    threading.excepthook = collect
    try:
        yield
    finally:
        threading.excepthook = previous


def _is_unauthorized(lines: list[str]) -> bool:
    return any(code in line for line in lines for code in UNAUTHORIZED)


class ErrorShower(logging.Handler):
    """Shows why the site could not answer: in full, and with the traceback of a bug."""

    def __init__(self, log: Callable[[str], None]) -> None:
        super().__init__()
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[0]:
            sys.excepthook(*record.exc_info)
        self.log(record.getMessage())


class _ErrorCollector(logging.Handler):
    def __init__(self, errors: list[str]) -> None:
        super().__init__(logging.ERROR)
        self.errors = errors

    def emit(self, record: logging.LogRecord) -> None:
        self.errors.append(record.getMessage())


class _RefusalCollector(_ErrorCollector):
    """Collects the requests that the server refused: after one, Flower only interrupts us."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__(errors)
        self.setLevel(logging.INFO)

    def emit(self, record: logging.LogRecord) -> None:
        if _is_unauthorized([record.getMessage()]):
            super().emit(record)
