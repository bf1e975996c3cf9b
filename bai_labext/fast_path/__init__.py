"""Optional fast path for requests to apps; `FastPath` is its whole interface.

It does not change what a request may do, only what it costs: `docs/fast-path.md` explains how, and
what a cached authorization means for security. Without it, all requests take the standard path
through Jupyter's handlers and `bai_labext.app_proxy`.
"""

from __future__ import annotations

import os
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPServerRequest
from traitlets import Bool, default
from traitlets.config import Configurable

from bai_labext.app_proxy.handler import NoteUse
from bai_labext.app_proxy.upstream import AppAddress, Connection
from bai_labext.fast_path.auth_cache import AuthCache
from bai_labext.fast_path.front_server import FrontServer, JupyterStream
from bai_labext.fast_path.splice import splice_sockets

ENABLED_VARIABLE = "BAI_APP_FAST_PATH"
ENABLED_BY_DEFAULT = True
_SWITCH = {"on": True, "1": True, "true": True, "off": False, "0": False, "false": False}


class FastPath(Configurable):
    """The fast path of one Jupyter server."""

    enabled = Bool(
        help="""
        Whether requests to apps may take the fast path.

        The environment variable ``BAI_APP_FAST_PATH`` (``on`` or ``off``) sets the default. When it
        is off, Jupyter checks and forwards each request. It has no effect where the server itself
        uses TLS (``internal_ssl``): such requests never take the fast path.
        """,
    ).tag(config=True)

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._cache = AuthCache()

    @default("enabled")
    def _enabled_default(self) -> bool:
        return _SWITCH.get(os.environ.get(ENABLED_VARIABLE, "").lower(), ENABLED_BY_DEFAULT)

    def install(self) -> None:
        """Make the HTTP servers that tornado creates from now on accept connections for it."""
        HTTPServer.configure(FrontServer, cache=self._cache)

    def covers(self, request: HTTPServerRequest) -> bool:
        """Return whether the fast path accepted the connection of a request."""
        return isinstance(_stream(request), JupyterStream)

    def take_pending(self, request: HTTPServerRequest, address: AppAddress) -> Connection | None:
        """Return the connection over which this request was already sent to the app."""
        stream = _stream(request)
        return stream.take_pending(address) if isinstance(stream, JupyterStream) else None

    def cache_authorization(
        self,
        request: HTTPServerRequest,
        sent: bytes,
        prefix: bytes,
        address: AppAddress,
        note_use: NoteUse,
    ) -> None:
        """Let later requests with the headers of ``request``, which Jupyter authorized, bypass it.

        ``sent`` is the head that the app received for it, ``prefix`` the path of the app with a
        slash at its end.
        """
        stream = _stream(request)
        if isinstance(stream, JupyterStream):
            self._cache.add(stream.head, sent, prefix, address, note_use)

    async def move(self, source: int, target: int, count: int) -> int:
        """Let the kernel move bytes between two sockets; see `splice_sockets`."""
        return await splice_sockets(source, target, count)


def _stream(request: HTTPServerRequest) -> Any:
    return getattr(request.connection, "stream", None)
