"""Authentication of requests: service secrets, keypair signatures, Hub tokens, Hub cookies."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jupyterhub.services.auth import HubOAuth
from tornado.httputil import HTTPServerRequest
from tornado.web import HTTPError, RequestHandler

from bai_services.client_address import TrustedProxies
from bai_services.core.accounts import signature
from bai_services.core.accounts.roles import SESSION_SCOPE, Caller, Role
from bai_services.core.errors import Forbidden, InvalidRequest, NotSignedIn, Unavailable
from bai_services.manager.accounts.callers import SignedRequest
from bai_services.manager.manager import Manager

# A token revoked by the Hub is accepted for at most this long; the account is read every time.
TOKEN_CACHE_SECONDS = 3
TOKEN_CACHE_SIZE = 10_000
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class TokenOwner:
    """The owner of a Hub token; a session's own token stands for the session, not for its user."""

    username: str
    is_session: bool = False


class SignIn:
    """Finds the caller of a request, by the table "Identity" in docs/architecture.md."""

    def __init__(self, manager: Manager, hub_oauth: HubOAuth | None = None) -> None:
        """``hub_oauth`` reads the browser's cookie; without it only headers are used."""
        self._manager = manager
        self._hub_oauth = hub_oauth
        self._proxies = TrustedProxies.parse(manager.settings.trusted_proxies)
        self._tokens: dict[bytes, tuple[float, TokenOwner | None]] = {}
        self._asked: dict[bytes, asyncio.Future[Mapping[str, Any] | None]] = {}

    async def caller_of(self, handler: RequestHandler) -> Caller:
        """Return the caller.

        Raises
        ------
        NotSignedIn
            If the request is not authenticated, or the account is refused.
        Forbidden
            If a browser's request lacks the XSRF token.
        Unavailable
            If the Hub must be queried and cannot be reached.
        """
        header = handler.request.headers.get("Authorization", "")
        if not header:
            return await self._by_cookie(handler)
        if header.partition(" ")[0] == signature.SCHEME:
            return await self._by_signature(handler, header)
        if token := _token_in(header):
            return await self._by_token(handler, token)
        raise NotSignedIn("the Authorization header is none of: Bearer TOKEN, BackendAI signature")

    async def recheck(self, handler: RequestHandler, caller: Caller) -> None:
        """Raise unless the caller of an open request would still be accepted now.

        Raises
        ------
        NotSignedIn
            If the sign-in, the token or the keypair has ended, or the account is refused.
        Unavailable
            If the Hub cannot be reached.
        """
        header = handler.request.headers.get("Authorization", "")
        if header.partition(" ")[0] == signature.SCHEME:
            # The signature is that of the request; only the keypair and the account can have
            # changed.
            await self._manager.accounts.callers.recheck_keypair(caller)
            return
        # HubOAuth queries the Hub once per request and caches the answer here.
        vars(handler).pop("_cached_hub_user", None)
        await self.caller_of(handler)

    async def browser_caller(self, handler: RequestHandler) -> Caller:
        """Return the caller of a request from a signed-in browser; tokens are not accepted."""
        caller = await self._by_cookie(handler)
        # HubOAuth also accepts tokens, and sets this attribute if it has.
        if getattr(handler, "_token_authenticated", False):
            raise NotSignedIn("this is for a signed-in browser, not for a token")
        return caller

    def require_signature(self, handler: RequestHandler) -> None:
        """Raise ``Forbidden`` unless the request is signed with a keypair.

        A credential with an expiry must not be able to create a successor that outlives it.
        """
        header = handler.request.headers.get("Authorization", "")
        if header.partition(" ")[0] != signature.SCHEME:
            raise Forbidden("this is for requests signed with a keypair; sessions take your token")

    async def withdraw(self, handler: RequestHandler, caller: Caller) -> None:
        """Revoke the Hub token of a request at once.

        Raises
        ------
        InvalidRequest
            If the request has no token: it is signed with a keypair or from a browser.
        """
        token = _token_in(handler.request.headers.get("Authorization", ""))
        if not token:
            raise InvalidRequest(
                "send the token that is to be revoked as Authorization: Bearer TOKEN; "
                "a keypair can be deactivated with PATCH /keypairs/KEY"
            )
        await self._manager.accounts.sign_ins.withdraw(caller, token)
        self._tokens[_key_of(token)] = (time.monotonic() + TOKEN_CACHE_SECONDS, None)

    async def person_ip(self, handler: RequestHandler, named: str = "") -> str:
        """Return the address of the user; the Hub sends it as ``named``."""
        return named if named and await self.is_hub(handler) else self.client_ip(handler.request)

    async def is_hub(self, handler: RequestHandler) -> bool:
        """Return whether the Hub sends a request to an open operation."""
        is_signed = handler.request.headers.get("Authorization", "") != ""
        return is_signed and (await self.caller_of(handler)).role is Role.HUB

    def client_ip(self, request: HTTPServerRequest) -> str:
        """Return the client's address: from the proxy's header if the peer is a trusted proxy."""
        return self._proxies.client_address(
            request.remote_ip or "", request.headers.get("X-Forwarded-For", "")
        )

    async def _by_token(self, handler: RequestHandler, token: str) -> Caller:
        client_ip = self.client_ip(handler.request)
        for role, secret in (
            (Role.HUB, self._manager.settings.hub_token),
            (Role.AGENT, self._manager.settings.agent_token),
        ):
            # If a service has no secret, an empty token must not match.
            if secret and hmac.compare_digest(token.encode(), secret.encode()):
                return Caller(role, client_ip=client_ip)
        owner = await self._owner_of_token(token)
        if owner is None:
            raise NotSignedIn("the token is not (or no longer) valid here; sign in again")
        if owner.is_session:
            return await self._manager.accounts.callers.in_session(owner.username, client_ip)
        return await self._manager.accounts.callers.by_username(owner.username, client_ip)

    async def _owner_of_token(self, token: str) -> TokenOwner | None:
        key = _key_of(token)
        now = time.monotonic()
        cached = self._tokens.get(key)
        if cached is not None and cached[0] > now:
            return cached[1]
        if not self._manager.hub.is_known:
            return None
        asked = self._asked.get(key)
        if asked is None:
            # Single-flight: a burst of requests with one token queries the Hub once.
            asked = asyncio.ensure_future(self._manager.hub.user_of_token(token))
            self._asked[key] = asked
            asked.add_done_callback(lambda _: self._asked.pop(key, None))
        model = await asyncio.shield(asked)
        owner = None if model is None else self._owner_in(model)
        if len(self._tokens) >= TOKEN_CACHE_SIZE:
            self._tokens = {k: entry for k, entry in self._tokens.items() if entry[0] > now}
            if len(self._tokens) >= TOKEN_CACHE_SIZE:
                self._tokens.clear()
        # Unless it was revoked while the Hub was queried.
        if self._tokens.get(key) in (None, cached):
            self._tokens[key] = (now + TOKEN_CACHE_SECONDS, owner)
        return owner

    def _owner_in(self, model: Mapping[str, Any]) -> TokenOwner | None:
        """Return the owner in the Hub's model of a token: a user, a session, or None."""
        if (username := self._name_in(model)) is not None:
            return TokenOwner(username)
        scopes = [str(scope).partition("!server=")[0] for scope in model.get("scopes") or ()]
        if model.get("kind") == "user" and SESSION_SCOPE in scopes:
            return TokenOwner(str(model["name"]), is_session=True)
        return None

    def _name_in(self, model: Mapping[str, Any]) -> str | None:
        """Return the user of a Hub model; None for a service or a token without access to this
        service.
        """
        scopes = set(model.get("scopes") or ())
        if model.get("kind") != "user" or not scopes & self._manager.settings.hub_access_scopes:
            return None
        return str(model["name"])

    async def _by_signature(self, handler: RequestHandler, header: str) -> Caller:
        access_key, given = signature.parse_authorization(header)
        headers = handler.request.headers
        try:
            date = datetime.fromisoformat(headers.get("Date", ""))
        except ValueError:
            date = None
        if date is None or date.tzinfo is None:
            raise NotSignedIn("the Date header is not an ISO 8601 time with a time zone")
        digest = headers.get(signature.DIGEST_HEADER, "")
        if digest and handler.request.method not in SAFE_METHODS and _is_streamed(handler):
            raise InvalidRequest(
                f"{signature.DIGEST_HEADER} cannot be checked here: the body is stored as it "
                "arrives. Leave the header out; tus uploads can carry an Upload-Checksum",
                header=signature.DIGEST_HEADER,
            )
        request = SignedRequest(
            access_key=access_key,
            signature=given,
            method=handler.request.method or "",
            path=handler.request.uri or "",
            host=headers.get("Host", ""),
            date=date,
            content_type=headers.get("Content-Type", ""),
            content_digest=digest,
        )
        caller = await self._manager.accounts.callers.by_signature(
            request, self.client_ip(handler.request)
        )
        if digest:
            signature.check_body(digest, handler.request.body)
        return caller

    async def _by_cookie(self, handler: RequestHandler) -> Caller:
        model = await self.hub_user(handler)
        username = None if model is None else self._name_in(model)
        if username is None:
            raise NotSignedIn("sign in first")
        if handler.request.method not in SAFE_METHODS:
            self.check_xsrf(handler)
        return await self._manager.accounts.callers.by_username(
            username, self.client_ip(handler.request)
        )

    async def hub_user(self, handler: RequestHandler) -> Mapping[str, Any] | None:
        """Return the Hub's model of the user whose browser sends the cookie."""
        oauth = self._hub_oauth
        if oauth is None:
            return None
        try:
            found: Mapping[str, Any] | None = await oauth.get_user(handler, sync=False)
        except HTTPError as error:
            # HubOAuth answers 500 for every failure of the Hub.
            raise Unavailable("the Hub cannot be reached to identify you; try again") from error
        return found

    def check_xsrf(self, handler: RequestHandler) -> None:
        """Raise ``Forbidden`` unless the request provably comes from one of our pages."""
        assert self._hub_oauth is not None
        try:
            self._hub_oauth.check_xsrf_cookie(handler)
        except HTTPError as error:
            raise Forbidden(
                "the request lacks the page's _xsrf token (X-XSRFToken); reload the page"
            ) from error


def _is_streamed(handler: RequestHandler) -> bool:
    """Return whether the handler receives its body in pieces."""
    return getattr(handler, "_stream_request_body", False) is True


def _token_in(header: str) -> str:
    """Return the token of an ``Authorization`` header, empty if it holds none."""
    scheme, _, value = header.partition(" ")
    return value.strip() if scheme.lower() in ("bearer", "token") else ""


def _key_of(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
