"""A reverse proxy in front of a hub, like the one of a site."""

from __future__ import annotations

import select
import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Forwarder(socketserver.ThreadingTCPServer):
    """Forwards each connection to a port of 127.0.0.1, and counts the connections."""

    daemon_threads = True

    def __init__(self, target: int, certificate: tuple[Path, Path] | None = None) -> None:
        """``certificate``: the files of the certificate for ``localhost`` and of its key."""
        super().__init__(("127.0.0.1", 0), _Connection)
        self.target = target
        self.host = "127.0.0.1" if certificate is None else "localhost"
        self.connections = 0
        self.context: ssl.SSLContext | None = None
        if certificate is not None:
            self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self.context.load_cert_chain(*certificate)

    @property
    def url(self) -> str:
        scheme = "http" if self.context is None else "https"
        return f"{scheme}://{self.host}:{self.server_address[1]}"


class _Connection(socketserver.BaseRequestHandler):
    server: Forwarder

    def handle(self) -> None:
        self.server.connections += 1
        client: socket.socket = self.request
        if self.server.context is not None:
            try:
                client = self.server.context.wrap_socket(client, server_side=True)
            except OSError:
                return  # the client does not accept the certificate
        with client, socket.create_connection(("127.0.0.1", self.server.target)) as hub:
            other = {client: hub, hub: client}
            while True:
                for end in select.select(list(other), [], [])[0]:
                    # At least the maximum size of a TLS record: nothing remains in a buffer.
                    content = end.recv(65536)
                    if not content:
                        return
                    other[end].sendall(content)


@contextmanager
def forwarding(target: int, certificate: tuple[Path, Path] | None = None) -> Iterator[Forwarder]:
    """Forward connections to a port of 127.0.0.1 in the block; see ``Forwarder``."""
    with Forwarder(target, certificate) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(20)
