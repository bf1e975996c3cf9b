"""Client of the Hub's REST API, as far as the manager uses it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from yarl import URL

from bai_services.core.errors import BaiError, Conflict, NotFound, RateLimited, Unavailable
from bai_services.core.sessions.lifecycle import SESSION_ID_OPTION

TIMEOUT_SECONDS = 20
# A start answers when the server is up, or with "pending" after the Hub's slow_spawn_timeout (10
# s).
START_TIMEOUT_SECONDS = 60
DEFAULT_RETRY_SECONDS = 5.0
CONNECTIONS = 64
PAGE_SIZE = 200
MAX_REVOCATION_ROUNDS = 5
_PAGED = {"Accept": "application/jupyterhub-pagination+json"}


class HubBusy(RateLimited):
    """The Hub has reached its limit of concurrent starts; try again after ``retry_after``
    seconds.
    """

    def __init__(self, retry_after: float) -> None:
        super().__init__(
            f"the Hub is at its limit of concurrent starts; next try in {retry_after:g} s",
            retry_after_seconds=retry_after,
        )
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Answer:
    """What the Hub answers."""

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
    """A token created by the Hub; ``value`` is only known right after its creation."""

    id: str
    value: str = field(repr=False)
    expires_at: str | None = None


class Hub:
    """Calls the Hub with the manager's service token.

    Every method raises ``Unavailable`` when the Hub cannot be reached, is starting, fails, or
    refuses the token, and ``NotFound`` when the user or server does not exist. ``server`` is the
    Hub's name of a server, empty for the unnamed one.
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
            # Created at the first call, because it belongs to the event loop in which it is
            # created.
            self._session = ClientSession(
                connector=TCPConnector(limit=CONNECTIONS),
                cookie_jar=DummyCookieJar(),
                headers=self._headers,
            )
        return self._session

    async def check(self, timeout_seconds: float = 2) -> None:
        """Raise ``Unavailable`` unless the Hub answers within ``timeout_seconds``."""
        await self.call("GET", "/", timeout_seconds=timeout_seconds)

    async def ensure_user(self, name: str) -> None:
        """Create a user in the Hub if there is none of that name."""
        # Queried first: the Hub logs a warning when it is asked to create an existing user.
        if (await self._send("GET", _user(name))).status == HTTPStatus.OK:
            return
        response = await self._send("POST", _user(name))
        if response.status != HTTPStatus.CONFLICT:
            _raise_for(response)

    async def delete_user(self, name: str) -> None:
        """Delete a user from the Hub: cookies, tokens and stopped servers; idempotent."""
        response = await self._send("DELETE", _user(name))
        if response.status != HTTPStatus.NOT_FOUND:
            _raise_for(response)

    async def user_of_token(self, token: str) -> Mapping[str, Any] | None:
        """Return the Hub's model of a token's owner, with ``scopes``; None if the token is not
        valid.
        """
        response = await self._send("GET", "/user", headers={"Authorization": f"token {token}"})
        if response.status in (HTTPStatus.FORBIDDEN, HTTPStatus.UNAUTHORIZED):
            return None
        _raise_for(response)
        found: Mapping[str, Any] = response.json()
        return found

    async def create_server(
        self, user: str, server: str, display_name: str, options: Mapping[str, Any]
    ) -> None:
        """Create a named server without starting it, if it does not exist."""
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
        """Request a start; return True if the server is up, False while it is starting.

        A named server that does not exist yet is created, under ``display_name``.

        Raises
        ------
        HubBusy
            If the Hub's limits on starts are reached.
        Conflict
            If the Hub refuses this start, for instance because the server runs already.
        """
        body: dict[str, Any] = {} if options is None else {"user_options": dict(options)}
        if display_name and server:
            body["display_name"] = display_name
        path = _server(user, server)
        response = await self._send("POST", path, json=body, timeout_seconds=START_TIMEOUT_SECONDS)
        if response.status == HTTPStatus.TOO_MANY_REQUESTS:
            raise HubBusy(_retry_after(response))
        _raise_for(response)
        return response.status == HTTPStatus.CREATED

    async def stop_server(
        self, user: str, server: str, remove: bool = True, session_id: str = ""
    ) -> bool:
        """Stop a server and, with ``remove``, delete it; return False while it is stopping.

        A server that does not exist counts as stopped; with a ``session_id``, so does one that now
        belongs to another session.
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
        """Return the Hub's model of a server, None if there is none."""
        try:
            found: Mapping[str, Any] = await self.call("GET", _server(user, server))
        except NotFound:
            return None
        return found

    async def servers_of(self, user: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the servers of a user by name; none if the Hub does not know the user."""
        try:
            model = await self.call("GET", _user(user), params={"include_stopped_servers": "1"})
        except NotFound:
            return {}
        servers: Mapping[str, Mapping[str, Any]] = model.get("servers") or {}
        return servers

    async def active_servers(self) -> AsyncIterator[tuple[str, Mapping[str, Any]]]:
        """Yield user name and model of every server that is running, starting or stopping."""
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
        """Create a token that acts as the user, or, with ``scopes``, is restricted to these."""
        body: dict[str, Any] = {"note": note, "expires_in": expires_in_seconds}
        if scopes:
            body["scopes"] = list(scopes)
        model = await self.call("POST", f"{_user(user)}/tokens", json=body)
        return HubToken(model["id"], model["token"], model.get("expires_at"))

    async def delete_token(self, token: str) -> None:
        """Revoke one token of a user; a token that is no longer valid is ignored."""
        model = await self.user_of_token(token)
        if model is not None and model["kind"] == "user":
            await self._delete_token(model["name"], model["token_id"])

    async def delete_tokens(self, user: str) -> None:
        """Revoke every token of a user, including those of their servers; unknown users have
        none.
        """
        await self._delete_tokens(user, lambda _: True)

    async def end_sign_ins(self, user: str, keep_session: str = "") -> None:
        """End a user's browser sign-ins with their OAuth tokens, except ``keep_session``."""
        await self._delete_tokens(
            user, lambda token: (token.get("session_id") or keep_session) != keep_session
        )

    async def end_access(self, user: str) -> None:
        """End sign-ins and revoke API tokens; tokens of the user's running servers stay valid."""
        servers = await self.servers_of(user)
        await self._delete_tokens(user, lambda token: not _is_of_server(token, user, servers))

    async def _delete_tokens(
        self, user: str, is_chosen: Callable[[Mapping[str, Any]], bool]
    ) -> None:
        # A token may create another between the listing and its own deletion: list again.
        for _ in range(MAX_REVOCATION_ROUNDS):
            try:
                found = await self.call("GET", f"{_user(user)}/tokens")
            except NotFound:
                return
            chosen = [token for token in found["api_tokens"] if is_chosen(token)]
            if not chosen:
                return
            # Sign-ins first: with a sign-in the Hub deletes its OAuth tokens and codes.
            chosen.sort(key=lambda token: token.get("session_id") is None)
            for token in chosen:
                await self._delete_token(user, token["id"])
        raise Unavailable(
            f"tokens of {user} are created as fast as they are revoked; trying again soon"
        )

    async def _delete_token(self, user: str, token_id: str) -> None:
        response = await self._send("DELETE", f"{_user(user)}/tokens/{quote(token_id, safe='')}")
        if response.status != HTTPStatus.NOT_FOUND:
            _raise_for(response)

    async def call(self, method: str, path: str, **options: Any) -> Any:
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
    ) -> Answer:
        if not self.is_known:
            raise Unavailable("this manager runs without a Hub")
        query = f"?{urlencode(params)}" if params else ""
        # Names in the path are quoted already and must not be encoded again.
        url = URL(f"{self._url}{path}{query}", encoded=True)
        try:
            async with self._http.request(
                method, url, timeout=ClientTimeout(timeout_seconds), **options
            ) as response:
                content = await response.read()
        except (ClientError, TimeoutError) as error:
            raise Unavailable("the Hub cannot be reached; try again shortly") from error
        return Answer(response.status, response.reason or "", response.headers, content)


def _raise_for(response: Answer) -> None:
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
        raise Conflict(f"the Hub refuses: {text}", hub_status=status)
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        raise HubBusy(_retry_after(response))
    if status in (HTTPStatus.FORBIDDEN, HTTPStatus.UNAUTHORIZED):
        raise Unavailable(f"the Hub refuses the manager's token: {text}", hub_status=status)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise Unavailable(f"the Hub failed: {text}", hub_status=status)
    raise BaiError(f"the Hub answered {status}: {text}", hub_status=status)


def _retry_after(response: Answer) -> float:
    try:
        return max(0.1, float(response.headers["Retry-After"]))
    except (KeyError, ValueError):
        return DEFAULT_RETRY_SECONDS


def _is_of_server(
    token: Mapping[str, Any], user: str, servers: Mapping[str, Mapping[str, Any]]
) -> bool:
    """Return whether a token belongs to a running server and is restricted to that server.

    Notes are free text, so the scopes decide.
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
