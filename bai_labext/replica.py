"""Main process of a replica: runs the model's server and forwards the gateway's requests to it.

The gateway connects to the port on which the Hub expects the session's server. A connection whose
first request contains the replica's secret is forwarded byte by byte, so that streams and
websockets work; every later request on it comes from the same gateway. For gRPC, HAProxy sends the
secret in a PROXY protocol header before the first byte of HTTP/2. Other requests get only the
answer to the Hub's readiness check.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import sys
import threading
from collections.abc import Mapping
from urllib.parse import urlsplit

from bai_labext import session_setup
from bai_labext.batch import Runner, hub_version
from bai_services.core.serving import replica_preface
from bai_services.system.ports import free_port

SECRET_VARIABLE = "BAI_REPLICA_SECRET"
PORT_VARIABLE = "BAI_SERVICE_PORT"
METRICS_PORT_VARIABLE = "BAI_METRICS_PORT"
MAX_HEAD_BYTES = 64 * 1024
HEAD_TIMEOUT_SECONDS = 30.0
CONNECT_TIMEOUT_SECONDS = 5.0
CHUNK_BYTES = 64 * 1024
# Header of the manager's requests in a trial: the response then lists the other ports on which the
# replica listens.
EXPLAIN_HEADER = b"x-bai-explain: 1"
MAX_PORTS = 5
# Header of the manager's requests for metrics; the runtime may serve them on another port.
METRICS_HEADER = b"x-bai-metrics"
# Requests with these headers came through the Hub's proxy and are not authorized; gateways never
# send them. Therefore a client cannot bypass the gateway even if it knows the secret, for example
# because the model's server echoes requests.
PROXY_HEADERS = frozenset({b"x-forwarded-host", b"x-forwarded-port"})
_HEAD_END = b"\r\n\r\n"


class ReplicaRunner(Runner):
    """Starts the server at once, and forwards requests until it ends."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(environ)
        self._secret = self._environ.pop(SECRET_VARIABLE, "")
        if self._environ.get("BAI_SESSION_ENGINE") == "process":
            # All replicas on a machine share the ports of the machine, so use a free port.
            self._environ[PORT_VARIABLE] = str(free_port())
            if METRICS_PORT_VARIABLE in self._environ:
                self._environ[METRICS_PORT_VARIABLE] = str(free_port())
        self._environ.setdefault("PORT", self._environ.get(PORT_VARIABLE, ""))

    def _serve(self) -> ForwardServer:
        url = urlsplit(self._environ["JUPYTERHUB_SERVICE_URL"])
        server = ForwardServer(
            (url.hostname or "127.0.0.1", url.port or 0),
            int(self._environ[PORT_VARIABLE]),
            self._secret,
            self._environ.get("JUPYTERHUB_BASE_URL", "/") + "hub/home",
            int(self._environ.get(METRICS_PORT_VARIABLE) or self._environ[PORT_VARIABLE]),
        )
        server.start()
        return server

    def _wait_for_hub(self) -> bool:
        """Return False only after a stop, because the model's server need not wait for the Hub."""
        return not self._stopping.is_set()


class ForwardServer:
    """Forwards authorized connections to a local port; runs an event loop in a thread."""

    def __init__(
        self, address: tuple[str, int], target: int, secret: str, home: str, metrics: int
    ) -> None:
        """``target``, ``metrics``: ports of the server for requests, and for its metrics."""
        self._address = address
        self._target = target
        self._metrics = metrics
        self._plain_secret = secret.encode()
        self._secret = f"token {secret}".encode() if secret else b""
        self._home = home
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    def start(self) -> int:
        """Listen, and return the port."""
        self._thread.start()
        server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        self._server = server
        return int(server.sockets[0].getsockname()[1])

    def shutdown(self) -> None:
        """Stop listening, close all connections, and stop the event loop."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def server_close(self) -> None:
        """Do nothing: ``shutdown`` has closed the listening socket."""

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _listen(self) -> asyncio.Server:
        host, port = self._address
        return await asyncio.start_server(self._connected, host, port, limit=MAX_HEAD_BYTES)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # asyncio would log the cancellation of a task that it creates itself.
        task = self._loop.create_task(self._accept(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HEAD_TIMEOUT_SECONDS):
                head = await reader.readuntil(_HEAD_END)
                if head == replica_preface.START:
                    await self._check_preface(reader)
            if head == replica_preface.START:
                await self._forward(b"", reader, writer)
            elif self._is_authorized(head):
                await self._forward(head, reader, writer)
            else:
                writer.write(self._own_response(head))
                await writer.drain()
        # OSError includes TimeoutError. An invalid preface raises ValueError.
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            pass
        finally:
            with contextlib.suppress(OSError):
                writer.close()

    async def _check_preface(self, reader: asyncio.StreamReader) -> None:
        """Read the header before HTTP/2; raise ``ValueError`` if it lacks the secret."""
        rest = await reader.readexactly(replica_preface.REST_BYTES)
        more = await reader.readexactly(replica_preface.length_after(rest))
        secret = replica_preface.secret_of(rest, more)
        if not self._plain_secret or not hmac.compare_digest(secret, self._plain_secret):
            raise ValueError("the connection has no secret")

    def _is_authorized(self, head: bytes) -> bool:
        # Compare all values, also repeated ones, so that the time does not show which is right.
        lines = [line.partition(b":") for line in head.split(b"\r\n")[1:]]
        fields = [(name.strip().lower(), value.strip()) for name, _, value in lines]
        values = [value for name, value in fields if name == b"authorization"]
        if any(name in PROXY_HEADERS for name, _ in fields):
            return False
        return (
            bool(self._secret) and len(values) == 1 and hmac.compare_digest(values[0], self._secret)
        )

    def _own_response(self, head: bytes) -> bytes:
        path = head.split(b" ", 2)[1].partition(b"?")[0] if head.count(b" ") >= 2 else b""
        is_check = path.rstrip(b"/").endswith(b"/api")
        status = "200 OK" if is_check else "302 Found"
        location = "" if is_check else f"Location: {self._home}\r\n"
        return (
            f"HTTP/1.1 {status}\r\nX-JupyterHub-Version: {hub_version()}\r\n{location}"
            "Content-Length: 0\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
        ).encode()

    def _port_for(self, head: bytes) -> int:
        names = [line.partition(b":")[0].strip().lower() for line in head.split(b"\r\n")[1:]]
        return self._metrics if METRICS_HEADER in names else self._target

    async def _forward(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                server_reader, server_writer = await asyncio.open_connection(
                    "127.0.0.1", self._port_for(head)
                )
        except OSError:
            if not head:
                return  # a client of HTTP/2 cannot parse an HTTP/1.1 response
            more = b""
            if b"\r\n" + EXPLAIN_HEADER in head.lower():
                ports = ",".join(map(str, await asyncio.to_thread(listening_ports)))
                more = b"X-Bai-Listening: %b\r\n" % ports.encode()
            writer.write(
                b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n"
                b"Retry-After: 1\r\n%bConnection: close\r\n\r\n" % more
            )
            await writer.drain()
            return
        server_writer.write(head)
        try:
            async with asyncio.TaskGroup() as directions:
                directions.create_task(_copy(reader, server_writer))
                directions.create_task(_copy(server_reader, writer))
        except* OSError:
            pass  # one of the peers has closed the connection
        finally:
            server_writer.close()


def listening_ports() -> list[int]:
    """Return the ports on which the processes of the replica listen; empty if they are unknown."""
    # Imported only for trials, because the import would delay every replica.
    import psutil

    found: set[int] = set()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            found |= {
                connection.laddr.port
                for connection in process.net_connections("tcp")
                if connection.status == psutil.CONN_LISTEN
            }
    return sorted(found)[:MAX_PORTS]


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end of the stream; the other direction may continue."""
    while data := await reader.read(CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


if __name__ == "__main__":
    session_setup.apply(os.environ)
    sys.exit(ReplicaRunner(os.environ).run())
