"""Close websockets and streaming responses when their sign-in has ended or their token is revoked.

Jupyter itself checks a credential only when a request begins, but a websocket can stay open for
days.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from tornado.web import HTTPError, RequestHandler
from tornado.websocket import WebSocketClosedError

# For requests, the Hub's response about a credential is cached for this time.
CACHE_TTL_SECONDS = 3
# With CLOSE_TIMEOUT_SECONDS, an open connection is closed at most about 4.5 s after a sign-out.
CHECK_INTERVAL_SECONDS = 3.5
# Timeout for the client's response to the close frame of a websocket.
CLOSE_TIMEOUT_SECONDS = 1.0
CLOSE_REASON = "you are no longer signed in; sign in again"

log = logging.getLogger(__name__)

Credential = tuple[str, str]
"""Token and browser session id, from which ``HubAuth`` builds its cache keys."""


class SignInWatch:
    """The authorized requests of one Jupyter server, checked while they are open."""

    def __init__(self, hub_auth: Any, check_seconds: float = CHECK_INTERVAL_SECONDS) -> None:
        self._hub_auth = hub_auth
        self._check_seconds = check_seconds
        self._handlers: WeakSet[Any] = WeakSet()

    def add(self, handler: RequestHandler) -> None:
        """Watch an authorized request; a request that ends before the next check is not checked."""
        self._handlers.add(handler)

    async def run(self) -> None:
        """Call ``check`` in a loop."""
        while True:
            await asyncio.sleep(self._check_seconds)
            try:
                await self.check()
            except Exception:
                log.exception("bai_labext: open connections could not be checked")

    async def check(self) -> None:
        """Query the Hub once per credential, and close the connections of invalid credentials."""
        by_credential: dict[Credential, list[Any]] = {}
        for handler in list(self._handlers):
            if not _is_open(handler):
                self._handlers.discard(handler)
            elif (credential := self._credential(handler)) is not None:
                by_credential.setdefault(credential, []).append(handler)
        await asyncio.gather(*(self._check(c, each) for c, each in by_credential.items()))

    async def _check(self, credential: Credential, handlers: list[Any]) -> None:
        token, session_id = credential
        auth = self._hub_auth
        try:
            model = await auth.user_for_token(
                token, use_cache=False, session_id=session_id, sync=False
            )
        except HTTPError:
            return  # the Hub does not respond, so it is unknown whether the credential is valid
        # Cache the response for requests with this credential.
        auth.cache[_cache_key(credential)] = model
        if model is not None and auth.check_scopes(auth.access_scopes, model):
            return
        for handler in handlers:
            close_connection(handler)

    def _credential(self, handler: Any) -> Credential | None:
        known: Credential | None = getattr(handler, "_bai_credential", None)
        if known is None and (token := self._hub_auth.get_token(handler)):
            known = handler._bai_credential = (token, self._hub_auth.get_session_id(handler))
        return known


def close_connection(handler: Any) -> None:
    """Close the connection of a handler.

    If a websocket handler has a method ``sign_in_ended``, call that method to close the websocket.
    """
    if (connection := getattr(handler, "ws_connection", None)) is not None:
        stream = connection.stream
        sign_in_ended: Callable[[], None] | None = getattr(handler, "sign_in_ended", None)
        with suppress(WebSocketClosedError):
            if sign_in_ended is not None:
                sign_in_ended()
            else:
                handler.close(1008, CLOSE_REASON)
        # A client that ignores the close frame could continue to send messages.
        asyncio.get_running_loop().call_later(CLOSE_TIMEOUT_SECONDS, stream.close)
    elif (stream := getattr(handler.request.connection, "stream", None)) is not None:
        stream.close()


def watch_sign_ins(
    provider: Any, check_seconds: float = CHECK_INTERVAL_SECONDS
) -> SignInWatch | None:
    """Watch all requests that an identity provider authorizes; return the watch.

    Return None if the provider is not JupyterHub's, because the server was started without a Hub.
    """
    hub_auth = getattr(provider, "hub_auth", None)
    if hub_auth is None:
        return None
    sign_in_watch = SignInWatch(hub_auth, check_seconds)
    get_user = provider.get_user

    async def get_watched_user(handler: RequestHandler) -> Any:
        user = await get_user(handler)
        if user is not None:
            sign_in_watch.add(handler)
        return user

    provider.get_user = get_watched_user
    return sign_in_watch


def _is_open(handler: Any) -> bool:
    return getattr(handler, "ws_connection", None) is not None or not handler._finished


def _cache_key(credential: Credential) -> str:
    token, session_id = credential
    return f"token:{session_id}:{hashlib.sha256(token.encode('utf8', 'replace')).hexdigest()}"
