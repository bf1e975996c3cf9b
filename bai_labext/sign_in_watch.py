"""Close open websockets and streams soon after the sign-in or token behind them has ended.

Jupyter checks a credential when a request begins, but a websocket may stay open for days.
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

# The Hub's answer about a credential is cached for this time, for requests.
CACHE_SECONDS = 3
# With the second below, an open connection is closed at most 4.5 s after its sign-in has ended.
CHECK_SECONDS = 3.5
# The client of a websocket has this long to answer the close frame.
CLOSE_SECONDS = 1.0
TEXT = "you are no longer signed in; sign in again"

log = logging.getLogger(__name__)

Credential = tuple[str, str]
"""Token and browser session, as the Hub's library keys its cache."""


class SignInWatch:
    """The open connections of one Jupyter server, and the credential of each."""

    def __init__(self, hub_auth: Any, check_seconds: float = CHECK_SECONDS) -> None:
        self._hub_auth = hub_auth
        self._check_seconds = check_seconds
        self._handlers: WeakSet[Any] = WeakSet()

    def note(self, handler: RequestHandler) -> None:
        """Watch an authorized request, if it is still open at the next check; cheap."""
        self._handlers.add(handler)

    async def run(self) -> None:
        """Check in a loop."""
        while True:
            await asyncio.sleep(self._check_seconds)
            try:
                await self.check()
            except Exception:
                log.exception("bai_labext: open connections could not be checked")

    async def check(self) -> None:
        """Query the Hub once per credential of open connections; close those that it rejects."""
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
            return  # the Hub does not answer, which signs nobody out
        # New requests with this credential need no query of their own.
        auth.cache[_cache_key(credential)] = model
        if model is not None and auth.check_scopes(auth.access_scopes, model):
            return
        for handler in handlers:
            end(handler)

    def _credential(self, handler: Any) -> Credential | None:
        known: Credential | None = getattr(handler, "_bai_credential", None)
        if known is None and (token := self._hub_auth.get_token(handler)):
            known = handler._bai_credential = (token, self._hub_auth.get_session_id(handler))
        return known


def end(handler: Any) -> None:
    """Close the connection of a handler, with the handler's own method if it has one."""
    if (connection := getattr(handler, "ws_connection", None)) is not None:
        stream = connection.stream
        own: Callable[[], None] | None = getattr(handler, "sign_in_ended", None)
        with suppress(WebSocketClosedError):
            if own is not None:
                own()
            else:
                handler.close(1008, TEXT)
        # A client that does not answer the close frame could continue to send.
        asyncio.get_running_loop().call_later(CLOSE_SECONDS, stream.close)
    elif (stream := getattr(handler.request.connection, "stream", None)) is not None:
        stream.close()


def watch(provider: Any, check_seconds: float = CHECK_SECONDS) -> SignInWatch | None:
    """Watch whomever an identity provider lets in; None where it is not the Hub's."""
    hub_auth = getattr(provider, "hub_auth", None)
    if hub_auth is None:
        return None
    found = SignInWatch(hub_auth, check_seconds)
    get_user = provider.get_user

    async def get_watched_user(handler: RequestHandler) -> Any:
        user = await get_user(handler)
        if user is not None:
            found.note(handler)
        return user

    provider.get_user = get_watched_user
    return found


def _is_open(handler: Any) -> bool:
    return getattr(handler, "ws_connection", None) is not None or not handler._finished


def _cache_key(credential: Credential) -> str:
    token, session_id = credential
    return f"token:{session_id}:{hashlib.sha256(token.encode('utf8', 'replace')).hexdigest()}"
