"""Requests on their way to an app: over kept connections, and answers as they come.

By itself jupyter-server-proxy opens a connection for each request, and holds an answer until it is
whole: none of more than 100 MB gets through, and nothing of a long one is seen before its end.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from jupyter_server_proxy.handlers import ProxyHandler
from tornado.httputil import HTTPHeaders, HTTPInputError
from tornado.web import HTTPError, RequestHandler

from bai_labext.fast_path.auth_cache import Note, shortcuts
from bai_labext.fast_path.front import Turn
from bai_labext.fast_path.upstream import (
    Answer,
    Connection,
    Cut,
    Place,
    answered,
    connections,
    leave_out,
)
from bai_services.tunnel.memory import keep_freed

# An answer up to this size leaves in one piece with its head.
SMALL_BYTES = 128 * 1024
# And one from this size on is the kernel's to move.
LONG_BYTES = 4 * 1024 * 1024
# May be sent again where a kept connection turns out to be closed.
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
REDIRECTS = frozenset({301, 302, 303, 307, 308})
# Of one connection, this side's or the other: not for who is behind it.
OF_A_HOP = (
    *("Connection", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "TE", "Trailer"),
    *("Upgrade", "Proxy-Authorization", "Proxy-Authenticate", "Expect"),
)
# What lets somebody in may stand in the address as well.
IN_THE_ADDRESS = frozenset({"token", "_xsrf"})
# With one of these a request is more than its line and who asks.
OF_MORE = ("Content-Length", "Transfer-Encoding", "Upgrade", "Expect")


class Forwarded(ProxyHandler):
    """Goes behind the handlers of jupyter-server-proxy and before what they all stand on.

    Who may ask, what is started and which path is asked for is theirs.
    """

    # Who is told of a request that came without Jupyter; none comes where this is None.
    shortcut_note: Note | None = None

    _upstream: Connection | None = None

    async def proxy(self, host: str, port: Any, proxied_path: str) -> None:
        """Send the request to the app, and what the app answers to whoever asked."""
        if self.rewrite_response or not self._check_host_allowlist(host):
            await self.find_local_host(host, port)
            await super().proxy(host, port, proxied_path)
            return
        place = (str(self.unix_socket), 0) if self.unix_socket else (host, int(port))
        try:
            head = self._head(host, port, proxied_path)
            answer = await self._asked(place, head)
            self._offer_shortcut(place, head, self._get_context_path(host, port))
            self._begin(answer, host, port, proxied_path)
            if answer.length is not None and answer.length >= LONG_BYTES and self._turn:
                await self._pass_long(answer)
            else:
                await self._pass_on(answer)
            answer.end(place)
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
        """Find out before ``get_client_uri``, which cannot wait, where a local port answers."""

    def on_connection_close(self) -> None:
        super().on_connection_close()
        if self._upstream is not None:
            self._upstream.close()

    def compute_etag(self) -> None:
        """Leave it to the app: this would be a hash over all that it says."""

    def _log(self) -> None:
        if self.get_status() >= 400:
            super()._log()

    def _head(self, host: str, port: Any, proxied_path: str) -> bytes:
        request = self.request
        # Not self's: that looks for where the port answers, which is only tried here.
        uri = ProxyHandler.get_client_uri(self, "http", host, port, proxied_path)
        target = "/" + uri.partition("//")[2].partition("/")[2].partition("#")[0]
        headers = self.proxy_request_headers()
        if not self.absolute_url:
            context = self._get_context_path(host, port)
            for name in ("X-Forwarded-Context", "X-ProxyContextPath", "X-Forwarded-Prefix"):
                headers[name] = context
        leave_out(headers, OF_A_HOP)
        if request.body or request.method in WITH_BODY or "Content-Length" in headers:
            headers["Content-Length"] = str(len(request.body))
        lines = [f"{request.method} {target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.get_all()]
        if any("\r" in line or "\n" in line for line in lines):
            raise HTTPError(400)
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    async def _asked(self, place: Place, head: bytes) -> Answer:
        """Return the answer once its head is there."""
        message = head + self.request.body if self.request.body else head
        method = str(self.request.method)
        begun = self._turn.take_begun(place) if self._turn else None
        kept = begun or (connections.kept(place) if method in SAFE else None)
        if kept is not None:
            self._upstream = kept
            try:
                return await answered(kept, method, b"" if begun else message)
            except Cut:
                if self._has_gone:
                    raise
        self._upstream = await connections.fresh(place)
        return await answered(self._upstream, method, message)

    @property
    def _turn(self) -> Turn | None:
        stream = self.request.connection.stream
        return stream if isinstance(stream, Turn) else None

    def _offer_shortcut(self, place: Place, sent: bytes, context: str) -> None:
        """Let the next request with this one's headers go straight to the app."""
        turn, note, request = self._turn, self.shortcut_note, self.request
        if turn is None or note is None or not self.current_user:
            return
        if getattr(self, "mappath", None):
            return  # what the next path becomes is a rule of the app's own
        if not IN_THE_ADDRESS.isdisjoint(request.arguments):
            return  # whose headers say less than who it is
        is_plain = request.method == "GET" and not any(name in request.headers for name in OF_MORE)
        if is_plain and "close" not in request.headers.get("Connection", "").lower():
            shortcuts.issue(turn.head, sent, f"{context}/".encode(), place, note)

    def _begin(self, answer: Answer, host: str, port: Any, proxied_path: str) -> None:
        self.set_status(answer.code, answer.reason or None)
        location = answer.headers.get("Location")
        if location is not None and answer.code in REDIRECTS and not self.absolute_url:
            rewritten = self._rewrite_location_header(location, host, port, proxied_path)
            answer.headers["Location"] = rewritten
        self._headers = answer.headers

    async def _pass_on(self, answer: Answer) -> None:
        if answer.length is not None and answer.length <= SMALL_BYTES:
            async for piece in answer.pieces():
                self.write(piece)
            return
        keep_freed()
        self.request.connection.stream.set_nodelay(True)
        # Not self.flush(), of which jupyter-server-proxy gives nothing to wait for.
        await RequestHandler.flush(self)
        async for piece in answer.pieces():
            self.write(piece)
            await RequestHandler.flush(self)

    async def _pass_long(self, answer: Answer) -> None:
        """Send an answer past tornado, which every byte would come by; the connection ends then."""
        self.set_header("Connection", "close")
        await RequestHandler.flush(self)
        stream = self.detach()
        stream.set_close_callback(answer.connection.close)
        try:
            with suppress(OSError):  # whoever asked sees that it is not all
                await answer.send(stream)
                return
            answer.connection.close()
        finally:
            stream.set_close_callback(None)
            stream.close()

    @property
    def _has_gone(self) -> bool:
        return bool(self.request.connection.stream.closed())

    def _break_off(self, error: Exception) -> None:
        if self._upstream is not None:
            self._upstream.close()
        if self._has_gone:
            return
        if self._headers_written:
            # Nothing else tells whoever asked that this is not all.
            self.request.connection.stream.close()
            return
        self._headers = HTTPHeaders()
        self._write_buffer.clear()
        text = str(error) or "the app did not answer in time"
        raise HTTPError(500, text)
