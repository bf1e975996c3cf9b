"""A reverse proxy in front of a hub, like the one of a site."""

from __future__ import annotations

import select
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Forwarder(socketserver.ThreadingTCPServer):
    """Forwards each connection to a port of 127.0.0.1, and counts the connections."""

    daemon_threads = True

    def __init__(self, target: int) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.target = target
        self.connections = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Connection(socketserver.BaseRequestHandler):
    server: Forwarder

    def handle(self) -> None:
        self.server.connections += 1
        with socket.create_connection(("127.0.0.1", self.server.target)) as hub:
            other = {self.request: hub, hub: self.request}
            while True:
                for end in select.select(list(other), [], [])[0]:
                    content = end.recv(65536)
                    if not content:
                        return
                    other[end].sendall(content)


@contextmanager
def forwarding(target: int) -> Iterator[Forwarder]:
    """Forward connections to a port of 127.0.0.1 in the block."""
    with Forwarder(target) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(20)
