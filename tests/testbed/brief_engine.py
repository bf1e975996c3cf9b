"""An engine whose kernels exit with code 0 as soon as they have started."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from bai_spawner.engines.base import Exit, Running
from benchmarks.noop_engine import NoopEngine


class BriefEngine(NoopEngine):
    """Batch sessions of no length: like real ones they begin when the Hub has their server."""

    async def poll(self, running: Running) -> Exit | None:
        return None if self.parent.pending == "spawn" else Exit(0)


@contextmanager
def answering() -> Iterator[str]:
    """Serve the one address that the engine reports for all its sessions."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
