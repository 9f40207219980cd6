"""Serves the page to this machine alone, and keeps it up to date while runs continue."""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any

from fedadb.core.errors import BadInput, Fault
from fedadb.report.comparison import arrange
from fedadb.report.page import render_page, to_json
from fedadb.report.page_data import page_data
from fedadb.report.recorded_runs import collect_runs, find_runs
from fedadb.storage.run_directory import ROUNDS
from fedadb.storage.searches import SEARCHES


class LiveData:
    """The page's data of all runs below some directories, read again when records are added."""

    def __init__(self, directories: Sequence[Path], title: str) -> None:
        self.directories, self.title = directories, title
        self._lock = Lock()
        self._sizes: dict[Path, int] = {}  # of records and searches when they were read
        self._data: dict[str, Any] = {}

    def json(self) -> str:
        """The data as JSON; if the runs cannot be read now, the previous data with the error."""
        with self._lock:
            try:
                runs = find_runs(self.directories)
                files = [directory / ROUNDS for directory in runs]
                for parent in {directory.parent for directory in runs}:
                    files += (parent / SEARCHES).glob("*.json")
                sizes = {path: path.stat().st_size for path in files if path.exists()}
                if sizes != self._sizes:
                    collected = collect_runs(self.directories)
                    self._data = page_data(arrange(collected.runs), self.title)
                    self._data["errors"] = collected.errors
                    self._sizes = sizes
            except (BadInput, Fault, OSError) as error:
                if not self._data:
                    raise
                return to_json({**self._data, "errors": [str(error)]})
            return to_json(self._data)


def serve_page(live: LiveData, port: int) -> ThreadingHTTPServer:
    """A server of the page at 127.0.0.1, ready for `serve_forever`; port 0 is any free one."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # A web page elsewhere could point its own host name at this address and read the data.
            host = (self.headers.get("Host") or "").rpartition(":")[0]
            if host not in ("127.0.0.1", "localhost"):
                return self._send(403, "text/plain", "Only this machine may read this page.")
            try:
                data = live.json()
            except (BadInput, Fault, OSError) as error:
                retry = f"<meta http-equiv=refresh content=2><p>{escape(str(error))}"
                return self._send(503, "text/html", retry)
            if self.path == "/":
                return self._send(200, "text/html", render_page(json.loads(data), live=True))
            if self.path != "/data.json":
                return self._send(404, "text/plain", "This server has / and /data.json.")
            version = f'"{hashlib.sha256(data.encode()).hexdigest()}"'
            if self.headers.get("If-None-Match") == version:
                return self._send(304, "application/json", "")
            return self._send(200, "application/json", data, version)

        def _send(self, code: int, kind: str, text: str, version: str = "") -> None:
            body = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            if version:
                self.send_header("ETag", version)
            self.end_headers()
            with suppress(ConnectionError):  # the browser may have closed the connection
                if self.command != "HEAD":
                    self.wfile.write(body)

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *words: object) -> None:
            """Write nothing to the terminal."""

    try:
        return ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as error:
        raise BadInput(
            f"--port {port}: {error.strerror}; choose another one, or 0 for any free one"
        ) from error
