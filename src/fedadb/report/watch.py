"""The page over loopback, following runs as they go on."""

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
from fedadb.report.groups import arrange
from fedadb.report.page import as_json, page
from fedadb.report.pagedata import page_data
from fedadb.report.runs import find, read_all
from fedadb.storage.run_directory import ROUNDS


class Watched:
    """Runs below some directories, read anew when one of them has gone on."""

    def __init__(self, places: Sequence[Path], title: str) -> None:
        self.places, self.title = places, title
        self._lock = Lock()
        self._state: tuple[tuple[str, int], ...] = ()
        self._shown: dict[str, Any] = {}

    def data(self) -> str:
        """What the page shows now, as JSON; the last that could be read if now it cannot."""
        with self._lock:
            try:
                found = [directory / ROUNDS for directory in find(self.places)]
                state = tuple((str(p), p.stat().st_size) for p in found if p.exists())
                if state != self._state:
                    reading = read_all(self.places)
                    self._shown = page_data(arrange(reading.runs), self.title)
                    self._shown["trouble"] = "; ".join(reading.damaged)
                    self._state = state
            except (BadInput, Fault, OSError) as error:
                if not self._shown:
                    raise
                return as_json({**self._shown, "trouble": str(error)})
            return as_json(self._shown)


def serve(watched: Watched, port: int) -> ThreadingHTTPServer:
    """A server on loopback that is ready to run; port 0 is any that is free."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host = (self.headers.get("Host") or "").rpartition(":")[0]
            if host not in ("127.0.0.1", "localhost"):  # a page elsewhere that says it is this one
                return self._send(403, "text/plain", "This is for the machine it runs on.")
            try:
                data = watched.data()
            except (BadInput, Fault, OSError) as error:
                waiting = f"<meta http-equiv=refresh content=2><p>{escape(str(error))}"
                return self._send(503, "text/html", waiting)
            if self.path == "/":
                return self._send(200, "text/html", page(json.loads(data), live=True))
            if self.path != "/data.json":
                return self._send(404, "text/plain", "There is / and /data.json.")
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
            with suppress(ConnectionError):  # who asked may have left
                if self.command != "HEAD":
                    self.wfile.write(body)

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *words: object) -> None:
            """Say nothing: the terminal is the user's."""

    try:
        return ThreadingHTTPServer(("127.0.0.1", port), Answer)
    except OSError as error:
        raise BadInput(f"--port {port}: {error.strerror}; another one, or 0 for any") from error
