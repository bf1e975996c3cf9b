"""An HTTP server for callbacks, which records requests and sends the responses that a test sets."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler


@dataclass(frozen=True)
class Call:
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def content(self) -> dict[str, Any]:
        return dict(json.loads(self.body))


@dataclass
class Receiver:
    """Responds with the next of ``answers`` (a status, or a URL to redirect to), or with 204."""

    url: str
    port: int
    calls: list[Call] = field(default_factory=list)
    answers: deque[int | str] = field(default_factory=deque)
    # Requests get no response until this event is set.
    may_respond: asyncio.Event = field(default_factory=asyncio.Event)
    # Whether responses have a body that never ends.
    is_endless: bool = False

    @property
    def statuses(self) -> list[str]:
        return [call.content["status"] for call in self.calls]


class _Handler(RequestHandler):
    def initialize(self, receiver: Receiver) -> None:
        self.receiver = receiver

    async def post(self) -> None:
        receiver, request = self.receiver, self.request
        receiver.calls.append(Call(request.uri or "", dict(request.headers), request.body))
        await receiver.may_respond.wait()
        answer = receiver.answers.popleft() if receiver.answers else 204
        if isinstance(answer, str):
            self.set_status(302)
            self.set_header("Location", answer)
        else:
            self.set_status(answer)
        try:
            while receiver.is_endless:
                self.write(b"x" * 65536)
                await self.flush()
        except StreamClosedError:
            receiver.is_endless = False

    get = post


@asynccontextmanager
async def serve_receiver(address: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Receiver]:
    """Serve a receiver on an address of this machine; port 0: a free port."""
    (socket,) = bind_sockets(port, address)
    port = socket.getsockname()[1]
    receiver = Receiver(f"http://{address}:{port}/callback", port)
    receiver.may_respond.set()
    server = HTTPServer(Application([(r".*", _Handler, {"receiver": receiver})]))
    server.add_socket(socket)
    try:
        yield receiver
    finally:
        receiver.may_respond.set()
        receiver.is_endless = False
        server.stop()
        await server.close_all_connections()
