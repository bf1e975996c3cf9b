"""Optional fast path for requests to apps; `FastPath` is its interface.

The fast path makes requests cheaper without changing their permissions. `docs/fast-path.md`
explains how it works and why its cached authorizations are secure. Without the fast path, all
requests pass through Jupyter's handlers and `bai_labext.app_proxy`.
"""

from __future__ import annotations

import os
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPServerRequest
from traitlets import Bool, default
from traitlets.config import Configurable

from bai_labext.app_proxy.handler import RecordUse
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

        The environment variable ``BAI_APP_FAST_PATH`` (``on`` or ``off``) sets the default. If off,
        Jupyter checks and forwards each request. The option has no effect if the server itself uses
        TLS (``internal_ssl``), because such requests never take the fast path.
        """,
    ).tag(config=True)

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._cache = AuthCache()

    @default("enabled")
    def _enabled_default(self) -> bool:
        return _SWITCH.get(os.environ.get(ENABLED_VARIABLE, "").lower(), ENABLED_BY_DEFAULT)

    def install(self) -> None:
        """Make tornado create a `FrontServer` instead of its own HTTP server from now on."""
        HTTPServer.configure(FrontServer, cache=self._cache)

    def covers(self, request: HTTPServerRequest) -> bool:
        """Return whether a request arrived on a connection of the fast path."""
        return isinstance(_stream(request), JupyterStream)

    def take_pending(self, request: HTTPServerRequest, address: AppAddress) -> Connection | None:
        """Return the connection on which the fast path has sent this request to the app.

        Return None if the fast path has not sent it.
        """
        stream = _stream(request)
        return stream.take_pending(address) if isinstance(stream, JupyterStream) else None

    def cache_authorization(
        self,
        request: HTTPServerRequest,
        sent: bytes,
        prefix: bytes,
        address: AppAddress,
        record_use: RecordUse,
    ) -> None:
        """Cache the authorization of ``request``, which Jupyter has authorized.

        Until it expires, requests with the same headers bypass Jupyter. ``sent`` is the head that
        was sent to the app, ``prefix`` the path of the app with a slash at its end.
        """
        stream = _stream(request)
        if isinstance(stream, JupyterStream):
            self._cache.add(stream.head, sent, prefix, address, record_use)

    async def move(self, source: int, target: int, count: int) -> int:
        """Move up to ``count`` bytes between two sockets, and return the number moved.

        The kernel moves them without a copy in this process; see `splice_sockets`.
        """
        return await splice_sockets(source, target, count)


def _stream(request: HTTPServerRequest) -> Any:
    return getattr(request.connection, "stream", None)
