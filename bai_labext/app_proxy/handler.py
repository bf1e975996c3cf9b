"""Proxy request handler that streams the responses of an app to the client.

jupyter-server-proxy itself opens a connection for each request, and buffers every response except
event streams. A buffered response over 100 MB fails, and the client receives nothing before the
response is complete.
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
from bai_services.tunnel.memory import retain_freed_memory

# Maximum length of a response that is buffered and sent together with its head. Longer responses,
# and those of unknown length, are streamed.
MAX_BUFFERED_RESPONSE_BYTES = 128 * 1024
# Minimum length of a response whose body is moved with splice(2), if the fast path is on.
MIN_FAST_MOVE_BYTES = 4 * 1024 * 1024
# Requests with these methods can be retried if a reused connection turns out to be closed.
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
REDIRECTS = frozenset({301, 302, 303, 307, 308})
# These headers apply to a single connection, so a proxy must not forward them.
HOP_BY_HOP = (
    *("Connection", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "TE", "Trailer"),
    *("Upgrade", "Proxy-Authorization", "Proxy-Authenticate", "Expect"),
)
# Query parameters that can authorize a request instead of its headers.
CREDENTIAL_PARAMETERS = frozenset({"token", "_xsrf"})
# After the head of a request with one of these headers, more data can follow.
BODY_HEADERS = ("Content-Length", "Transfer-Encoding", "Upgrade", "Expect")

# Key of the fast path in the settings of a Jupyter server. The key is missing if the fast path is
# off.
FAST_PATH_SETTING = "bai_fast_path"


RecordUse = Callable[[str], None]
"""Called for each request that bypasses Jupyter; the argument is the path inside the app."""


class RequestFastPath(Protocol):
    """Interface of the fast path (`bai_labext.fast_path`) for this handler."""

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
        record_use: RecordUse,
    ) -> None: ...


class AppProxyHandler(ProxyHandler):
    """Base class of proxy handlers that forwards HTTP requests itself.

    jupyter-server-proxy authorizes the request, starts the app and determines the path. It also
    forwards websockets, and requests to apps whose responses it must rewrite.
    """

    # Called for each request that bypasses Jupyter. If None, this handler caches no authorization,
    # so its requests do not bypass Jupyter.
    record_fast_use: RecordUse | None = None

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
            is_long = response.length is not None and response.length >= MIN_FAST_MOVE_BYTES
            if is_long and self._fast_path:
                await self._send_long(response, self._fast_path)
            else:
                await self._send(response)
            response.end(address)
        except (OSError, TimeoutError, HTTPInputError) as error:
            self._abort(error)
        finally:
            self._upstream = None

    async def proxy_open(self, host: str, port: Any, proxied_path: str = "") -> None:
        await self.find_local_host(host, port)
        await super().proxy_open(host, port, proxied_path)
        if self.ws_connection is not None:
            self.set_nodelay(True)

    async def find_local_host(self, host: str, port: Any) -> None:
        """Hook for subclasses: look up the address of an app that listens on a loopback port.

        It is called before ``get_client_uri``, which is not async and thus cannot wait.
        """

    def on_connection_close(self) -> None:
        super().on_connection_close()
        if self._upstream is not None:
            self._upstream.close()

    def compute_etag(self) -> None:
        """Leave the ETag to the app; tornado would hash the whole body."""

    def _log(self) -> None:
        if self.get_status() >= 400:
            super()._log()

    def _head(self, host: str, port: Any, proxied_path: str) -> bytes:
        request = self.request
        # Do not call the override of a subclass, which uses the address from ``find_local_host``:
        # that method is not called for this request. The connection tries the loopback addresses in
        # turn.
        uri = ProxyHandler.get_client_uri(self, "http", host, port, proxied_path)
        target = "/" + uri.partition("//")[2].partition("/")[2].partition("#")[0]
        headers = self.proxy_request_headers()
        if not self.absolute_url:
            context = self._get_context_path(host, port)
            for name in ("X-Forwarded-Context", "X-ProxyContextPath", "X-Forwarded-Prefix"):
                headers[name] = context
        remove_headers(headers, HOP_BY_HOP)
        if request.body or request.method in METHODS_WITH_BODY or "Content-Length" in headers:
            headers["Content-Length"] = str(len(request.body))
        lines = [f"{request.method} {target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.get_all()]
        if any("\r" in line or "\n" in line for line in lines):
            raise HTTPError(400)
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    async def _response(self, address: AppAddress, head: bytes) -> AppResponse:
        """Send the request and return the response once its head has arrived."""
        message = head + self.request.body if self.request.body else head
        method = str(self.request.method)
        fast_path = self._fast_path
        # If the fast path has sent this request to the app already, read the response to it.
        pending = fast_path.take_pending(self.request, address) if fast_path else None
        reused = pending or (pool.take(address) if method in SAFE_METHODS else None)
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
        """The fast path, if this request arrived on one of its connections."""
        found: RequestFastPath | None = self.settings.get(FAST_PATH_SETTING)
        return found if found is not None and found.covers(self.request) else None

    def _cache_authorization(self, address: AppAddress, sent: bytes, context: str) -> None:
        """Let requests with the same headers bypass Jupyter for a short time, if that is safe."""
        fast_path, record_use, request = self._fast_path, self.record_fast_use, self.request
        if fast_path is None or record_use is None or not self.current_user:
            return
        if getattr(self, "mappath", None):
            return  # jupyter-server-proxy rewrites the paths of this app
        if not CREDENTIAL_PARAMETERS.isdisjoint(request.arguments):
            return  # the request may be authorized only by its URL, not by its headers
        is_plain = request.method == "GET" and not any(h in request.headers for h in BODY_HEADERS)
        if is_plain and "close" not in request.headers.get("Connection", "").lower():
            prefix = f"{context}/".encode()
            fast_path.cache_authorization(request, sent, prefix, address, record_use)

    def _begin(self, response: AppResponse, host: str, port: Any, proxied_path: str) -> None:
        self.set_status(response.code, response.reason or None)
        location = response.headers.get("Location")
        if location is not None and response.code in REDIRECTS and not self.absolute_url:
            rewritten = self._rewrite_location_header(location, host, port, proxied_path)
            response.headers["Location"] = rewritten
        self._headers = response.headers

    async def _send(self, response: AppResponse) -> None:
        if response.length is not None and response.length <= MAX_BUFFERED_RESPONSE_BYTES:
            async for chunk in response.chunks():
                self.write(chunk)
            return
        retain_freed_memory()
        self.request.connection.stream.set_nodelay(True)
        # Do not call self.flush(), because the override of jupyter-server-proxy returns no
        # awaitable.
        await RequestHandler.flush(self)
        async for chunk in response.chunks():
            self.write(chunk)
            await RequestHandler.flush(self)

    async def _send_long(self, response: AppResponse, fast_path: RequestFastPath) -> None:
        """Send a long response with ``fast_path.move``; then close the connection.

        Tornado would copy every byte.
        """
        self.set_header("Connection", "close")
        await RequestHandler.flush(self)
        stream = self.detach()
        stream.set_close_callback(response.connection.close)
        try:
            # The head has been sent, so an error only closes the connection. The client detects the
            # missing bytes by Content-Length.
            with suppress(OSError):
                await response.send_body(stream, fast_path.move)
                return
            response.connection.close()
        finally:
            stream.set_close_callback(None)
            stream.close()

    @property
    def _client_is_gone(self) -> bool:
        return bool(self.request.connection.stream.closed())

    def _abort(self, error: Exception) -> None:
        """Report a failed request to the client: as status 500, or by closing the connection."""
        if self._upstream is not None:
            self._upstream.close()
        if self._client_is_gone:
            return
        if self._headers_written:
            # The client detects an incomplete body only if the connection is closed.
            self.request.connection.stream.close()
            return
        self._headers = HTTPHeaders()
        self._write_buffer.clear()
        text = str(error) or "the app did not respond in time"
        raise HTTPError(500, text)
