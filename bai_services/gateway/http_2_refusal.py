"""Refusal of HTTP/2 connections by the built-in engine; only HAProxy serves HTTP/2."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived
from h2.exceptions import ProtocolError

from .heads import Refusal, is_grpc
from .limits import MAX_HEAD_BYTES

# An HTTP/2 connection begins with these bytes.
PREFACE = b"PRI * HTTP/2.0\r\n"


class Http2Refusal:
    """Refuses each request of a connection with a reason that clients of gRPC show."""

    def __init__(self, refusal: Refusal) -> None:
        self._refusal = refusal
        self._connection = H2Connection(
            H2Configuration(client_side=False, header_encoding="latin-1")
        )
        self._connection.initiate_connection()
        self._received = 0

    def receive(self, data: bytes) -> bytes | None:
        """Return the bytes to send; None if the connection must be closed."""
        self._received += len(data)
        if self._received > MAX_HEAD_BYTES:
            return None
        try:
            for event in self._connection.receive_data(data):
                if isinstance(event, RequestReceived):
                    self._refuse(event)
        except ProtocolError:
            return None
        return self._connection.data_to_send()

    def _refuse(self, request: RequestReceived) -> None:
        texts = {str(name): str(value) for name, value in request.headers}
        headers = [(":status", str(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED.value))]
        if is_grpc(texts.get("content-type", "").encode("latin-1")):
            headers = [(":status", "200"), ("content-type", "application/grpc"), *self._status()]
        self._connection.send_headers(request.stream_id, headers, end_stream=True)

    def _status(self) -> Iterator[tuple[str, str]]:
        for name, value in self._refusal.grpc_headers().items():
            yield name.lower(), value
