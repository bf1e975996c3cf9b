"""Client for the part of the Hub's REST API that the manager uses."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from yarl import URL

from bai_services import tracing
from bai_services.core.errors import BaiError, Conflict, NotFound, RateLimited, Unavailable
from bai_services.core.sessions.lifecycle import SESSION_ID_OPTION

TIMEOUT_SECONDS = 20
# The Hub responds to a start when the server is up, or with "pending" after its slow_spawn_timeout
# (10 s).
START_TIMEOUT_SECONDS = 60
DEFAULT_RETRY_SECONDS = 5.0
MAX_CONNECTIONS = 64
PAGE_SIZE = 200
# OAuth client of the tokens that the Hub itself uses.
HUB_CLIENT = "JupyterHub"
MAX_REVOCATION_ROUNDS = 5
_PAGED = {"Accept": "application/jupyterhub-pagination+json"}


class HubBusy(RateLimited):
    """The Hub has reached its limit of concurrent starts; retry after ``retry_after`` seconds."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(
            f"the Hub is at its limit of concurrent starts; next try in {retry_after:g} s",
            retry_after_seconds=retry_after,
        )
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class HubResponse:
    """A response of the Hub, read completely."""

    status: int
    reason: str
    headers: Mapping[str, str]
    content: bytes

    @property
    def is_error(self) -> bool:
        return self.status >= HTTPStatus.BAD_REQUEST

    def json(self) -> Any:
        return json.loads(self.content)


@dataclass(frozen=True, slots=True)
class HubToken:
    """A token created by the Hub. Only the response to its creation contains ``value``."""

    id: str
    value: str = field(repr=False)
    expires_at: str | None = None


class Hub:
    """Calls the Hub with the manager's service token.

    By default, methods raise ``Unavailable`` if the Hub cannot be reached, is starting, fails or
    rejects the token. They raise ``NotFound`` if the user or server does not exist.
    ``server`` is a server name in the Hub; the default server has the empty name.
    """

    def __init__(self, api_url: str, token: str) -> None:
        self.is_known = bool(api_url)
        self._url = api_url.rstrip("/")
        self._headers = {"Authorization": f"token {token}"}
        self._session: ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    @property
    def _http(self) -> ClientSession:
        if self._session is None:
            # Created at the first call, because it is bound to the running event loop.
            self._session = ClientSession(
                connector=TCPConnector(limit=MAX_CONNECTIONS),
                cookie_jar=DummyCookieJar(),
                headers=self._headers,
            )
        return self._session

    async def check(self, timeout_seconds: float = 2) -> None:
        """Raise ``Unavailable`` if the Hub does not respond within ``timeout_seconds``."""
        await self.call("GET", "/", timeout_seconds=timeout_seconds)

    async def ensure_user(self, name: str) -> None:
        """Create a user in the Hub if no user with that name exists."""
        # Check first, because the Hub logs a warning about a request to create an existing user.
        if (await self._send("GET", _user(name))).status == HTTPStatus.OK:
            return
        response = await self._send("POST", _user(name))
        if response.status != HTTPStatus.CONFLICT:
            _raise_for(response)

    async def delete_user(self, name: str) -> None:
        """Delete a user from the Hub, with its cookies, tokens and stopped servers; idempotent."""
        response = await self._send("DELETE", _user(name))
        if response.status != HTTPStatus.NOT_FOUND:
            _raise_for(response)

    async def user_of_token(self, token: str) -> Mapping[str, Any] | None:
        """Return the Hub's model of a token's owner, with ``scopes``; None for an invalid token."""
        response = await self._send("GET", "/user", headers={"Authorization": f"token {token}"})
        if response.status in (HTTPStatus.FORBIDDEN, HTTPStatus.UNAUTHORIZED):
            return None
        _raise_for(response)
        owner: Mapping[str, Any] = response.json()
        return owner

    async def create_server(
        self, user: str, server: str, display_name: str, options: Mapping[str, Any]
    ) -> None:
        """Create a named server if it does not exist, without starting it."""
        body = {"display_name": display_name, "user_options": dict(options)}
        response = await self._send("PUT", _server(user, server), json=body)
        if response.status != HTTPStatus.CONFLICT:
            _raise_for(response)

    async def start_server(
        self,
        user: str,
        server: str,
        options: Mapping[str, Any] | None = None,
        display_name: str = "",
    ) -> bool:
        """Request a start; return True if the server is up, False if it is still starting.

        A named server that does not exist is created with ``display_name``.

        Raises
        ------
        HubBusy
            If the Hub has reached its limit of concurrent starts.
        Conflict
            If the Hub rejects the start, for example because the server is already running.
        """
        body: dict[str, Any] = {} if options is None else {"user_options": dict(options)}
        if display_name and server:
            body["display_name"] = display_name
        path = _server(user, server)
        headers: dict[str, str] = {}
        tracing.inject(headers)
        response = await self._send(
            "POST", path, json=body, timeout_seconds=START_TIMEOUT_SECONDS, headers=headers
        )
        if response.status == HTTPStatus.TOO_MANY_REQUESTS:
            raise HubBusy(_retry_after(response))
        _raise_for(response)
        return response.status == HTTPStatus.CREATED

    async def stop_server(
        self, user: str, server: str, remove: bool = True, session_id: str = ""
    ) -> bool:
        """Stop a server and, with ``remove``, delete it; return False if it is still stopping.

        Also return True if the server does not exist or, with ``session_id``, if it now belongs to
        another session.
        """
        body: dict[str, Any] = {"remove": remove and bool(server)}
        if session_id:
            body[SESSION_ID_OPTION] = session_id
        response = await self._send(
            "DELETE", _server(user, server), json=body, timeout_seconds=START_TIMEOUT_SECONDS
        )
        if response.status == HTTPStatus.NOT_FOUND:
            return True
        _raise_for(response)
        return response.status == HTTPStatus.NO_CONTENT

    async def server_model(self, user: str, server: str) -> Mapping[str, Any] | None:
        """Return the Hub's model of a server; None if it does not exist."""
        try:
            model: Mapping[str, Any] = await self.call("GET", _server(user, server))
        except NotFound:
            return None
        return model

    async def servers_of(self, user: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the servers of a user by name; empty if the Hub has no such user."""
        try:
            model = await self.call("GET", _user(user), params={"include_stopped_servers": "1"})
        except NotFound:
            return {}
        servers: Mapping[str, Mapping[str, Any]] = model.get("servers") or {}
        return servers

    async def active_servers(self) -> AsyncIterator[tuple[str, Mapping[str, Any]]]:
        """Yield the user name and model of every running, starting or stopping server."""
        offset = 0
        while True:
            params = {"state": "active", "offset": offset, "limit": PAGE_SIZE}
            page = await self.call("GET", "/users", params=params, headers=_PAGED)
            for user in page["items"]:
                for server in (user.get("servers") or {}).values():
                    yield user["name"], server
            if not page["_pagination"].get("next"):
                return
            offset = page["_pagination"]["next"]["offset"]

    async def create_token(
        self, user: str, note: str, expires_in_seconds: int, scopes: Sequence[str] = ()
    ) -> HubToken:
        """Create a token with the user's permissions, or only with ``scopes`` if given."""
        body: dict[str, Any] = {"note": note, "expires_in": expires_in_seconds}
        if scopes:
            body["scopes"] = list(scopes)
        model = await self.call("POST", f"{_user(user)}/tokens", json=body)
        return HubToken(model["id"], model["token"], model.get("expires_at"))

    async def delete_token(self, token: str) -> None:
        """Revoke one token of a user; do nothing for an invalid token or a token of a service."""
        model = await self.user_of_token(token)
        if model is not None and model["kind"] == "user":
            await self._delete_token(model["name"], model["token_id"])

    async def delete_tokens(self, user: str) -> None:
        """Revoke every token of a user and of the user's servers.

        Do nothing if the Hub has no such user.
        """
        await self._delete_tokens(user, lambda _: True)

    async def end_sign_ins(self, user: str, keep_session: str = "") -> None:
        """End a user's browser sign-ins and their OAuth tokens, except those of ``keep_session``.

        ``keep_session`` is the session id of a browser sign-in.
        """
        await self._delete_tokens(
            user, lambda token: (token.get("session_id") or keep_session) != keep_session
        )

    async def sign_ins_of(self, user: str) -> Sequence[Mapping[str, Any]]:
        """Return the models of the tokens of a user's browser sign-ins, newest first.

        They are the tokens with a session id that belong to the Hub and not to another OAuth
        client. Return an empty list if the Hub has no such user.
        """
        try:
            page = await self.call("GET", f"{_user(user)}/tokens")
        except NotFound:
            return []
        found = [
            token
            for token in page["api_tokens"]
            if token.get("session_id") and token.get("oauth_client") == HUB_CLIENT
        ]
        return sorted(found, key=lambda token: str(token["created"]), reverse=True)

    async def end_sign_in(self, user: str, token_id: str) -> None:
        """End one browser sign-in; do nothing if it has ended already."""
        await self._delete_token(user, token_id)

    async def end_access(self, user: str) -> None:
        """End sign-ins and revoke API tokens; tokens of the user's running servers stay valid."""
        servers = await self.servers_of(user)
        await self._delete_tokens(user, lambda token: not _is_of_server(token, user, servers))

    async def _delete_tokens(
        self, user: str, is_selected: Callable[[Mapping[str, Any]], bool]
    ) -> None:
        # A token can create another token before it is deleted, so list until none is selected.
        for _ in range(MAX_REVOCATION_ROUNDS):
            try:
                page = await self.call("GET", f"{_user(user)}/tokens")
            except NotFound:
                return
            selected = [token for token in page["api_tokens"] if is_selected(token)]
            if not selected:
                return
            # Delete tokens of sign-ins first: the Hub then also deletes the sign-in's OAuth tokens
            # and codes.
            selected.sort(key=lambda token: token.get("session_id") is None)
            for token in selected:
                await self._delete_token(user, token["id"])
        raise Unavailable(
            f"tokens of {user} are created as fast as they are revoked; "
            "the manager will try again soon"
        )

    async def _delete_token(self, user: str, token_id: str) -> None:
        response = await self._send("DELETE", f"{_user(user)}/tokens/{quote(token_id, safe='')}")
        if response.status != HTTPStatus.NOT_FOUND:
            _raise_for(response)

    async def call(self, method: str, path: str, **options: Any) -> Any:
        """Call the Hub; return the decoded JSON response, None if it is empty."""
        response = await self._send(method, path, **options)
        _raise_for(response)
        return response.json() if response.content else None

    async def _send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        **options: Any,
    ) -> HubResponse:
        if not self.is_known:
            raise Unavailable("this manager is configured without a Hub")
        query = f"?{urlencode(params)}" if params else ""
        # Names in the path are already quoted; do not encode them twice.
        url = URL(f"{self._url}{path}{query}", encoded=True)
        try:
            async with self._http.request(
                method, url, timeout=ClientTimeout(timeout_seconds), **options
            ) as response:
                content = await response.read()
        except (ClientError, TimeoutError) as error:
            raise Unavailable("the Hub cannot be reached; try again shortly") from error
        return HubResponse(response.status, response.reason or "", response.headers, content)


def _raise_for(response: HubResponse) -> None:
    if not response.is_error:
        return
    status = response.status
    try:
        text = str(response.json()["message"])
    except (ValueError, KeyError, TypeError):
        text = response.reason
    if status == HTTPStatus.NOT_FOUND:
        raise NotFound(f"the Hub has no such user or server: {text}")
    if status in (HTTPStatus.BAD_REQUEST, HTTPStatus.CONFLICT):
        raise Conflict(f"the Hub rejected the request: {text}", hub_status=status)
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        raise HubBusy(_retry_after(response))
    if status in (HTTPStatus.FORBIDDEN, HTTPStatus.UNAUTHORIZED):
        raise Unavailable(f"the Hub rejected the manager's token: {text}", hub_status=status)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise Unavailable(f"the Hub failed: {text}", hub_status=status)
    raise BaiError(f"the Hub responded with status {status}: {text}", hub_status=status)


def _retry_after(response: HubResponse) -> float:
    try:
        return max(0.1, float(response.headers["Retry-After"]))
    except (KeyError, ValueError):
        return DEFAULT_RETRY_SECONDS


def _is_of_server(
    token: Mapping[str, Any], user: str, servers: Mapping[str, Mapping[str, Any]]
) -> bool:
    """Return whether a token belongs to a running server and is restricted to that server.

    The token's note is not sufficient, because users choose the notes of their own tokens.
    """
    return any(
        not server.get("stopped")
        and token.get("session_id") is None
        and str(token.get("note")).startswith("Server at ")
        and all(
            scope.startswith(("users:activity", "read:users"))
            or scope.endswith(f"!server={user}/{name}")
            for scope in token["scopes"]
        )
        for name, server in servers.items()
    )


def _user(name: str) -> str:
    return f"/users/{quote(name, safe='')}"


def _server(user: str, server: str) -> str:
    if not server:
        return f"{_user(user)}/server"
    return f"{_user(user)}/servers/{quote(server, safe='')}"
