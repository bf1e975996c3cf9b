"""A client of a running Jupyter server: HTTP requests and websockets, with or without a token."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx

from tests.testbed.plain_http import NO_TLS

if TYPE_CHECKING:
    from tornado.websocket import WebSocketClientConnection


@dataclass(frozen=True)
class JupyterServer:
    """A server at ``url``, which ends with a slash."""

    url: str
    token: str

    def get(self, path: str, token: str | None = "") -> httpx.Response:
        """Send a GET request; see ``headers`` for ``token``."""
        return self.request("GET", path, token)

    def request(self, method: str, path: str, token: str | None = "") -> httpx.Response:
        return httpx.request(
            method, self.url + path, headers=self.headers(token), timeout=60, verify=NO_TLS
        )

    def page(self, path: str) -> httpx.Response:
        """Return a page, requested with the server's token.

        A redirect may only change the query: VS Code adds its folder there.
        """
        answer = httpx.get(
            self.url + path,
            headers=self.headers(),
            timeout=60,
            follow_redirects=True,
            verify=NO_TLS,
        )
        assert answer.url.path == httpx.URL(self.url + path).path, answer.url
        return answer

    def headers(self, token: str | None = "") -> dict[str, str]:
        """Return the Authorization header for ``token``.

        If ``token`` is empty, the header has the server's token; if it is None, there is no header.
        """
        if token is None:
            return {}
        return {"Authorization": f"token {token or self.token}"}

    def is_ready(self) -> bool:
        address = urlsplit(self.url)
        # Use http.client: httpx leaks its socket if the starting server resets the connection.
        connection = HTTPConnection(address.hostname or "", address.port, timeout=10)
        try:
            connection.request("GET", f"{address.path}lab", headers=self.headers())
            with connection.getresponse() as response:
                response.read()
                return response.status == 200
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()

    @asynccontextmanager
    async def websocket(
        self, path: str, token: str | None = ""
    ) -> AsyncIterator[WebSocketClientConnection]:
        """Open a websocket; a rejection raises `tornado.httpclient.HTTPClientError`."""
        from tornado.httpclient import HTTPRequest
        from tornado.websocket import websocket_connect

        address = self.url.replace("http", "ws", 1) + path
        connection = await websocket_connect(
            HTTPRequest(address, headers=self.headers(token), request_timeout=30)
        )
        try:
            yield connection
        finally:
            connection.close()
            # The socket is closed when the server has also sent its close frame.
            while await connection.read_message() is not None:
                pass

    async def run_in_terminal(self, command: str, until: str) -> str:
        """Run a command in a new terminal; return the output once it contains ``until``."""
        name = self.request("POST", "api/terminals").json()["name"]
        shown = ""
        async with self.websocket(f"terminals/websocket/{name}") as terminal:
            await terminal.write_message(json.dumps(["stdin", command + "\r"]))
            while until not in shown:
                message: Any = await terminal.read_message()
                assert message is not None, f"the terminal ended: {shown}"
                kind, *content = json.loads(message)
                if kind == "stdout":
                    shown += content[0]
        return shown
