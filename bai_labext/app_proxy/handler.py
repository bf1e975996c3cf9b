"""Request handler that streams requests and responses between a client and an app.

jupyter-server-proxy alone opens a connection for each request and buffers each response: a response
over 100 MB fails, and a client sees nothing of a long one before its end.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from jupyter_server_proxy.handlers import ProxyHandler
from tornado.httputil import HTTPHeaders, HTTPInputError, HTTPServerRequest
from tornado.web import HTTPError, RequestHandler

from bai_labext.app_proxy.upstream import (
    AppAddress,
    AppResponse,
    Connection,
    ConnectionCut,
    pool,
    remove_headers,
    response_over,
)
from bai_services.tunnel.memory import keep_freed

# A response up to this size is sent in one piece with its head.
SMALL_BYTES = 128 * 1024
# A response from this size on is moved by the fast path.
LONG_BYTES = 4 * 1024 * 1024
# May be sent again if a reused connection turns out to be closed.
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
REDIRECTS = frozenset({301, 302, 303, 307, 308})
# They concern one connection, not the client or the app behind it.
HOP_BY_HOP = (
    *("Connection", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "TE", "Trailer"),
    *("Upgrade", "Proxy-Authorization", "Proxy-Authenticate", "Expect"),
)
# Query parameters that may authorize a request, without a trace in its headers.
CREDENTIAL_PARAMETERS = frozenset({"token", "_xsrf"})
# A request with one of these consists of more than its line and headers.
BODY_HEADERS = ("Content-Length", "Transfer-Encoding", "Upgrade", "Expect")

# Name under which a Jupyter server's settings have its fast path, if there is one.
FAST_PATH_SETTING = "bai_fast_path"


NoteUse = Callable[[str], None]
"""Called with the path inside the app of each request that bypasses Jupyter."""


class RequestFastPath(Protocol):
    """What this handler uses of a fast path (`bai_labext.fast_path`)."""

    async def move(self, source: int, target: int, count: int) -> int: ...

    def covers(self, request: HTTPServerRequest) -> bool: ...

    def take_pending(
        self, request: HTTPServerRequest, address: AppAddress
    ) -> Connection | None: ...

    def cache_authorization(
        self,
        request: HTTPServerRequest,
        sent: bytes,
        prefix: bytes,
        address: AppAddress,
        note_use: NoteUse,
    ) -> None: ...


class AppProxyHandler(ProxyHandler):
    """Base class between the handlers of jupyter-server-proxy and their own base classes.

    Those handlers still decide who may send a request, which app is started, and which path is
    requested.
    """

    # Called for requests that bypass Jupyter; None: no request of this handler may bypass it.
    note_fast_use: NoteUse | None = None

    _upstream: Connection | None = None

    async def proxy(self, host: str, port: Any, proxied_path: str) -> None:
        """Send the request to the app, and the response of the app to the client."""
        if self.rewrite_response or not self._check_host_allowlist(host):
            await self.find_local_host(host, port)
            await super().proxy(host, port, proxied_path)
            return
        address = (str(self.unix_socket), 0) if self.unix_socket else (host, int(port))
        try:
            head = self._head(host, port, proxied_path)
            response = await self._response(address, head)
            self._cache_authorization(address, head, self._get_context_path(host, port))
            self._begin(response, host, port, proxied_path)
            if response.length is not None and response.length >= LONG_BYTES and self._fast_path:
                await self._send_long(response, self._fast_path)
            else:
                await self._send(response)
            response.end(address)
        except (OSError, TimeoutError, HTTPInputError) as error:
            self._break_off(error)
        finally:
            self._upstream = None

    async def proxy_open(self, host: str, port: Any, proxied_path: str = "") -> None:
        await self.find_local_host(host, port)
        await super().proxy_open(host, port, proxied_path)
        if self.ws_connection is not None:
            self.set_nodelay(True)

    async def find_local_host(self, host: str, port: Any) -> None:
        """Find the address of a local port ahead of ``get_client_uri``, which cannot wait."""

    def on_connection_close(self) -> None:
        super().on_connection_close()
        if self._upstream is not None:
            self._upstream.close()

    def compute_etag(self) -> None:
        """Leave the ETag to the app: tornado would compute a hash over the whole body."""

    def _log(self) -> None:
        if self.get_status() >= 400:
            super()._log()

    def _head(self, host: str, port: Any, proxied_path: str) -> bytes:
        request = self.request
        # Not the subclass's method: it asks on which address the port listens, which the
        # connection finds out by trying.
        uri = ProxyHandler.get_client_uri(self, "http", host, port, proxied_path)
        target = "/" + uri.partition("//")[2].partition("/")[2].partition("#")[0]
        headers = self.proxy_request_headers()
        if not self.absolute_url:
            context = self._get_context_path(host, port)
            for name in ("X-Forwarded-Context", "X-ProxyContextPath", "X-Forwarded-Prefix"):
                headers[name] = context
        remove_headers(headers, HOP_BY_HOP)
        if request.body or request.method in WITH_BODY or "Content-Length" in headers:
            headers["Content-Length"] = str(len(request.body))
        lines = [f"{request.method} {target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.get_all()]
        if any("\r" in line or "\n" in line for line in lines):
            raise HTTPError(400)
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    async def _response(self, address: AppAddress, head: bytes) -> AppResponse:
        """Return the response once its head has arrived."""
        message = head + self.request.body if self.request.body else head
        method = str(self.request.method)
        fast_path = self._fast_path
        pending = fast_path.take_pending(self.request, address) if fast_path else None
        reused = pending or (pool.take(address) if method in SAFE else None)
        if reused is not None:
            self._upstream = reused
            try:
                return await response_over(reused, method, b"" if pending else message)
            except ConnectionCut:
                if self._client_is_gone:
                    raise
        self._upstream = await pool.open(address)
        return await response_over(self._upstream, method, message)

    @property
    def _fast_path(self) -> RequestFastPath | None:
        """The fast path, if it accepted the connection of this request."""
        found: RequestFastPath | None = self.settings.get(FAST_PATH_SETTING)
        return found if found is not None and found.covers(self.request) else None

    def _cache_authorization(self, address: AppAddress, sent: bytes, context: str) -> None:
        """Let the next requests with the headers of this one bypass Jupyter."""
        fast_path, note_use, request = self._fast_path, self.note_fast_use, self.request
        if fast_path is None or note_use is None or not self.current_user:
            return
        if getattr(self, "mappath", None):
            return  # the app has a rule of its own for paths
        if not CREDENTIAL_PARAMETERS.isdisjoint(request.arguments):
            return  # the headers alone do not say who sent it
        is_plain = request.method == "GET" and not any(h in request.headers for h in BODY_HEADERS)
        if is_plain and "close" not in request.headers.get("Connection", "").lower():
            prefix = f"{context}/".encode()
            fast_path.cache_authorization(request, sent, prefix, address, note_use)

    def _begin(self, response: AppResponse, host: str, port: Any, proxied_path: str) -> None:
        self.set_status(response.code, response.reason or None)
        location = response.headers.get("Location")
        if location is not None and response.code in REDIRECTS and not self.absolute_url:
            rewritten = self._rewrite_location_header(location, host, port, proxied_path)
            response.headers["Location"] = rewritten
        self._headers = response.headers

    async def _send(self, response: AppResponse) -> None:
        if response.length is not None and response.length <= SMALL_BYTES:
            async for piece in response.pieces():
                self.write(piece)
            return
        keep_freed()
        self.request.connection.stream.set_nodelay(True)
        # Not self.flush(): jupyter-server-proxy's returns nothing to await.
        await RequestHandler.flush(self)
        async for piece in response.pieces():
            self.write(piece)
            await RequestHandler.flush(self)

    async def _send_long(self, response: AppResponse, fast_path: RequestFastPath) -> None:
        """Send a response without tornado, which would copy every byte; then close."""
        self.set_header("Connection", "close")
        await RequestHandler.flush(self)
        stream = self.detach()
        stream.set_close_callback(response.connection.close)
        try:
            with suppress(OSError):  # the client sees from the length that the body is incomplete
                await response.send_body(stream, fast_path.move)
                return
            response.connection.close()
        finally:
            stream.set_close_callback(None)
            stream.close()

    @property
    def _client_is_gone(self) -> bool:
        return bool(self.request.connection.stream.closed())

    def _break_off(self, error: Exception) -> None:
        if self._upstream is not None:
            self._upstream.close()
        if self._client_is_gone:
            return
        if self._headers_written:
            # Closing is the only way to tell the client that the body is incomplete.
            self.request.connection.stream.close()
            return
        self._headers = HTTPHeaders()
        self._write_buffer.clear()
        text = str(error) or "the app did not answer in time"
        raise HTTPError(500, text)
