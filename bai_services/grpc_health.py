"""Client of gRPC's standard health service (``grpc.health.v1``), for replicas of endpoints."""

from __future__ import annotations

import asyncio
from enum import StrEnum

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import ProtocolError

from bai_services.core.serving.replica_preface import preface

_PATH = "/grpc.health.v1.Health/Check"
MAX_ANSWER_BYTES = 64 * 1024
# Status codes of gRPC.
_OK, _NOT_FOUND, _UNIMPLEMENTED = "0", "5", "12"
# The field `status` of the response, with the value SERVING.
_SERVING = b"\x08\x01"


class GrpcHealth(StrEnum):
    """``unimplemented``: the server has no health service. ``no-service``: the requested service
    does not exist. ``no-grpc``: the response is not gRPC.
    """

    SERVING = "serving"
    NOT_SERVING = "not-serving"
    UNIMPLEMENTED = "unimplemented"
    NO_SERVICE = "no-service"
    NO_GRPC = "no-grpc"

    @property
    def is_healthy(self) -> bool:
        """Whether the server is healthy, or has no health service but responds."""
        return self in (GrpcHealth.SERVING, GrpcHealth.UNIMPLEMENTED)


def service_of(path: str) -> str:
    """Return the service name in the path of a health check; "" stands for the whole server.

    >>> service_of("/"), service_of("/package.Service")
    ('', 'package.Service')
    """
    return path.strip("/")


async def check(host: str, port: int, secret: str, path: str, timeout_seconds: float) -> GrpcHealth:
    """Check the health of a replica's server; ``path`` is the path of the health check.

    Raises
    ------
    OSError, TimeoutError
        If the replica cannot be reached, closes the connection, or does not answer in time.
    """
    async with asyncio.timeout(timeout_seconds):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            return await _ask(reader, writer, secret, service_of(path))
        except ProtocolError:
            return GrpcHealth.NO_GRPC
        finally:
            writer.close()


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: str, service: str
) -> GrpcHealth:
    connection = H2Connection(H2Configuration(client_side=True, header_encoding="latin-1"))
    connection.initiate_connection()
    headers = {
        ":method": "POST", ":scheme": "http", ":authority": "localhost", ":path": _PATH,
        "content-type": "application/grpc", "te": "trailers",
    }  # fmt: skip
    connection.send_headers(1, list(headers.items()))
    name = service.encode()
    size = (
        bytes([len(name)]) if len(name) < 128 else bytes([len(name) % 128 + 128, len(name) // 128])
    )
    message = b"\x0a" + size + name if name else b""
    connection.send_data(1, b"\0" + len(message).to_bytes(4, "big") + message, end_stream=True)
    writer.write(preface(secret) + connection.data_to_send())
    answer = _Answer()
    received = 0
    while not answer.is_complete:
        data = await reader.read(16 * 1024)
        received += len(data)
        if not data:
            raise ConnectionResetError("the replica has closed the connection")
        # Check this here, because h2 would wait for the rest of a large frame.
        if received > MAX_ANSWER_BYTES or data.startswith(b"HTTP/"):
            return GrpcHealth.NO_GRPC
        for event in connection.receive_data(data):
            answer.add(event)
        writer.write(connection.data_to_send())
    return answer.health()


class _Answer:
    """The response to a health check, from the events of its connection."""

    def __init__(self) -> None:
        self.is_complete = False
        self._status = ""
        self._body = b""

    def add(self, event: Event) -> None:
        if isinstance(event, ResponseReceived | TrailersReceived):
            for name, value in event.headers or ():
                if name in ("grpc-status", b"grpc-status"):
                    self._status = value if isinstance(value, str) else value.decode("latin-1")
        elif isinstance(event, DataReceived):
            self._body += event.data or b""
        elif isinstance(event, StreamEnded | StreamReset | ConnectionTerminated):
            self.is_complete = True

    def health(self) -> GrpcHealth:
        if self._status == _UNIMPLEMENTED:
            return GrpcHealth.UNIMPLEMENTED
        if self._status == _NOT_FOUND:
            return GrpcHealth.NO_SERVICE
        if self._status == _OK and self._body[5:] == _SERVING:
            return GrpcHealth.SERVING
        return GrpcHealth.NOT_SERVING if self._status else GrpcHealth.NO_GRPC
