"""Authentication of requests by service secret, keypair signature, Hub token or Hub cookie."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jupyterhub.services.auth import HubOAuth
from tornado.httputil import HTTPServerRequest
from tornado.web import HTTPError, RequestHandler, decode_signed_value

from bai_services.core.accounts import signature
from bai_services.core.accounts.roles import SESSION_SCOPE, Caller, Role
from bai_services.core.errors import Forbidden, InvalidRequest, NotSignedIn, Unavailable
from bai_services.manager.accounts.callers import SignedRequest
from bai_services.manager.manager import Manager
from bai_services.single_flight import SingleFlight
from bai_services.trusted_proxies import TrustedProxies

# A token that was revoked in the Hub remains accepted for at most this time. Accounts are not
# cached, so a deactivation takes effect immediately.
TOKEN_CACHE_SECONDS = 3
TOKEN_CACHE_SIZE = 10_000
# Maximum time after a browser's last accepted request in which responses contain the reason why the
# account is refused.
BROWSER_CACHE_SECONDS = 24 * 3600
BROWSER_CACHE_SIZE = 10_000
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# Lifetime of the tokens in pages of the web UI, like that of the Hub's XSRF tokens.
PAGE_TOKEN_DAYS = 31
_PAGE_TOKEN = "bai-page"


@dataclass(frozen=True, slots=True)
class TokenOwner:
    """The owner of a Hub token. ``is_session``: the token belongs to a session of the user."""

    username: str
    is_session: bool = False


class _Browsers:
    """Maps the session id that the Hub gave to a browser to the user who was signed in there. When
    an account is refused, its Hub token is revoked and no longer identifies the user, but the
    browser still has its session id.
    """

    def __init__(self) -> None:
        self._users: dict[bytes, tuple[float, str]] = {}

    def accept(self, session_id: str, username: str) -> None:
        """Store the user of an accepted request; discard the least recently used if full."""
        if session_id:
            key = _key_of(session_id)
            self._users.pop(key, None)
            self._users[key] = (time.monotonic() + BROWSER_CACHE_SECONDS, username)
            if len(self._users) > BROWSER_CACHE_SIZE:
                del self._users[next(iter(self._users))]

    def last_user(self, session_id: str) -> str | None:
        expires_at, username = self._users.get(_key_of(session_id), (0.0, ""))
        return username if expires_at > time.monotonic() else None


class SignIn:
    """Finds the caller of a request by the rules in docs/architecture.md, table "Identity"."""

    def __init__(self, manager: Manager, hub_oauth: HubOAuth | None = None) -> None:
        """``hub_oauth`` reads the browser's cookie; None: authenticate by headers only."""
        self._manager = manager
        self._hub_oauth = hub_oauth
        self._proxies = TrustedProxies.parse(manager.settings.trusted_proxies)
        self._tokens: dict[bytes, tuple[float, TokenOwner | None]] = {}
        self._browsers = _Browsers()
        self._token_models: SingleFlight[bytes, Mapping[str, Any] | None] = SingleFlight()

    async def caller_of(self, handler: RequestHandler) -> Caller:
        """Return the caller.

        Raises
        ------
        NotSignedIn
            If the request has no valid credential, or the account may not sign in.
        InvalidRequest
            If a signed request has a Content-Digest header and a streamed body.
        Forbidden
            If a request with a cookie may be forged by another site (see ``_by_cookie``).
        RateLimited
            If the keypair of a signed request has reached its rate limit.
        Unavailable
            If the Hub has to be queried but is unavailable.
        """
        header = handler.request.headers.get("Authorization", "")
        if not header:
            return await self._by_cookie(handler)
        if header.partition(" ")[0] == signature.SCHEME:
            return await self._by_signature(handler, header)
        if token := _token_in(header):
            return await self._by_token(handler, token)
        raise NotSignedIn(
            "the Authorization header must be 'Bearer TOKEN' or a BackendAI signature"
        )

    async def recheck(self, handler: RequestHandler, caller: Caller) -> Caller:
        """Authenticate a long-running request again, and return the caller with the present role.

        Raises
        ------
        NotSignedIn
            If the sign-in or the token was revoked, or the keypair or the account deactivated.
        Unavailable
            If the Hub is unavailable.
        """
        header = handler.request.headers.get("Authorization", "")
        if header.partition(" ")[0] == signature.SCHEME:
            # Do not verify the signature again: only the keypair and the account can have changed.
            return await self._manager.accounts.callers.recheck_keypair(caller)
        # HubOAuth caches the Hub's response here for the rest of the request.
        vars(handler).pop("_cached_hub_user", None)
        return await self.caller_of(handler)

    async def browser_caller(self, handler: RequestHandler) -> Caller:
        """Return the caller of a request from a signed-in browser; tokens are not accepted."""
        caller = await self._by_cookie(handler)
        # HubOAuth also accepts tokens; it sets this attribute if it has accepted one.
        if getattr(handler, "_token_authenticated", False):
            raise NotSignedIn(
                "this operation requires a signed-in browser; tokens are not accepted"
            )
        return caller

    def require_signature(self, handler: RequestHandler) -> None:
        """Raise ``Forbidden`` if the request is not signed with a keypair.

        Other credentials expire, and must not be used to create a credential that expires later.
        """
        header = handler.request.headers.get("Authorization", "")
        if header.partition(" ")[0] != signature.SCHEME:
            raise Forbidden(
                "this operation requires a request signed with a keypair; with a token, use the"
                " token itself to open the session"
            )

    async def revoke_token(self, handler: RequestHandler, caller: Caller) -> None:
        """Revoke the Hub token of a request, with immediate effect.

        Raises
        ------
        InvalidRequest
            If the request is not authenticated by a token.
        """
        token = _token_in(handler.request.headers.get("Authorization", ""))
        if not token:
            raise InvalidRequest(
                "send the token to be revoked as Authorization: Bearer TOKEN; "
                "to deactivate a keypair, use PATCH /keypairs/KEY"
            )
        await self._manager.accounts.sign_ins.revoke_token(caller, token)
        self._tokens[_key_of(token)] = (time.monotonic() + TOKEN_CACHE_SECONDS, None)

    async def user_ip(self, handler: RequestHandler, reported: str = "") -> str:
        """Return the address of the user: ``reported`` if the Hub sends it, else the client's."""
        if reported and await self.is_hub(handler):
            return reported
        return self.client_ip(handler.request)

    async def is_hub(self, handler: RequestHandler) -> bool:
        """Return whether the Hub sent the request, for handlers whose callers need not sign in."""
        has_credential = handler.request.headers.get("Authorization", "") != ""
        return has_credential and (await self.caller_of(handler)).role is Role.HUB

    async def is_valid_token(self, token: str) -> bool:
        """Return whether a user's Hub token is valid; the result may be up to 3 s old."""
        return bool(token) and await self._owner_of_token(token) is not None

    def browser_token(self, handler: RequestHandler) -> str:
        """Return the Hub token that identifies the user of a page; empty if it is missing."""
        assert self._hub_oauth is not None
        return str(self._hub_oauth.get_token(handler) or "")

    def browser_session_id(self, handler: RequestHandler) -> str:
        """Return the session id that the Hub has given to the browser; empty without a cookie."""
        if self._hub_oauth is None or handler.request.headers.get("Authorization"):
            return ""
        return str(self._hub_oauth.get_session_id(handler) or "")

    def client_ip(self, request: HTTPServerRequest) -> str:
        """Return the client address; trust ``X-Forwarded-For`` only from trusted proxies."""
        return self._proxies.client_address(
            request.remote_ip or "", request.headers.get("X-Forwarded-For", "")
        )

    async def _by_token(self, handler: RequestHandler, token: str) -> Caller:
        client_ip = self.client_ip(handler.request)
        for role, secret in (
            (Role.HUB, self._manager.settings.hub_token),
            (Role.AGENT, self._manager.settings.agent_token),
            (Role.GATEWAY, self._manager.settings.gateway_token),
            (Role.SCRAPER, self._manager.settings.metrics_token),
        ):
            # An empty token must not match a secret that is not configured.
            if secret and hmac.compare_digest(token.encode(), secret.encode()):
                return Caller(role, client_ip=client_ip)
        agent_id = await self._manager.cluster.joins.agent_of(token)
        if agent_id is not None:
            return Caller(Role.AGENT, client_ip=client_ip, agent_id=agent_id)
        owner = await self._owner_of_token(token)
        if owner is None:
            raise NotSignedIn("the token is invalid, expired or revoked; sign in again")
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
        # A burst of requests with one token queries the Hub once.
        model = await self._token_models(key, lambda: self._manager.hub.user_of_token(token))
        owner = None if model is None else self._owner_in(model)
        if len(self._tokens) >= TOKEN_CACHE_SIZE:
            self._tokens = {k: entry for k, entry in self._tokens.items() if entry[0] > now}
            if len(self._tokens) >= TOKEN_CACHE_SIZE:
                self._tokens.clear()
        # Do not overwrite the entry of a token that was revoked while the Hub was queried.
        if self._tokens.get(key) in (None, cached):
            self._tokens[key] = (now + TOKEN_CACHE_SECONDS, owner)
        return owner

    def _owner_in(self, model: Mapping[str, Any]) -> TokenOwner | None:
        """Return the owner of the token that the Hub's model describes.

        Return None if this service does not accept the token.
        """
        if (username := self._name_in(model)) is not None:
            return TokenOwner(username)
        scopes = [str(scope).partition("!server=")[0] for scope in model.get("scopes") or ()]
        if model.get("kind") == "user" and SESSION_SCOPE in scopes:
            return TokenOwner(str(model["name"]), is_session=True)
        return None

    def _name_in(self, model: Mapping[str, Any]) -> str | None:
        """Return the user name in the Hub's model.

        Return None if the model describes a service, or if its scopes do not include access to
        this service.
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
            raise NotSignedIn("the Date header must be an ISO 8601 time with a time zone")
        digest = headers.get(signature.DIGEST_HEADER, "")
        if digest and handler.request.method not in SAFE_METHODS and _is_streamed(handler):
            raise InvalidRequest(
                f"{signature.DIGEST_HEADER} is not supported for streamed bodies; remove the "
                "header. For checksums use a tus upload with Upload-Checksum",
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
        headers = handler.request.headers
        if (
            headers.get("Sec-Fetch-Site") == "cross-site"
            and headers.get("Sec-Fetch-Mode") != "navigate"
        ):
            raise Forbidden("pages of other sites may not use the cookies of this site")
        model = await self.hub_user(handler)
        username = None if model is None else self._name_in(model)
        client_ip = self.client_ip(handler.request)
        session_id = "" if self._hub_oauth is None else self._hub_oauth.get_session_id(handler)
        if username is None:
            if last_user := self._browsers.last_user(session_id):
                # If the account is refused, this raises an error with the reason.
                await self._manager.accounts.callers.by_username(last_user, client_ip)
            raise NotSignedIn("sign in first")
        self._browsers.accept(session_id, username)
        if handler.request.method not in SAFE_METHODS:
            self.check_xsrf(handler, username)
        return await self._manager.accounts.callers.by_username(username, client_ip)

    async def hub_user(self, handler: RequestHandler) -> Mapping[str, Any] | None:
        """Return the Hub's model of the cookie's user; None without a sign-in.

        Raises
        ------
        Unavailable
            If the Hub is unavailable.
        """
        oauth = self._hub_oauth
        if oauth is None:
            return None
        try:
            model: Mapping[str, Any] | None = await oauth.get_user(handler, sync=False)
        except HTTPError as error:
            # HubOAuth raises HTTPError only if the Hub fails or is unavailable.
            raise Unavailable(
                "the Hub is unavailable and cannot identify you; try again"
            ) from error
        return model

    def check_xsrf(self, handler: RequestHandler, username: str) -> None:
        """Raise ``Forbidden`` if the request lacks the XSRF token of the manager's pages."""
        assert self._hub_oauth is not None
        if _owner_of_page(handler) == username:
            return
        try:
            self._hub_oauth.check_xsrf_cookie(handler)
        except HTTPError as error:
            raise Forbidden(
                "the request lacks the page's _xsrf token (X-XSRFToken); reload the page"
            ) from error


def page_token(handler: RequestHandler, username: str) -> str:
    """Return the XSRF token of a page that this user has opened.

    The token belongs to the user, not to the sign-in. Therefore a page can still be used after the
    same user has signed in again, but not after another user has signed in.
    """
    return handler.create_signed_value(_PAGE_TOKEN, username).decode("ascii")


def _owner_of_page(handler: RequestHandler) -> str | None:
    """Return the user whose page has sent the request; None without a valid page token."""
    value = decode_signed_value(
        handler.settings["cookie_secret"],
        _PAGE_TOKEN,
        handler.request.headers.get("X-XSRFToken", ""),
        max_age_days=PAGE_TOKEN_DAYS,
        min_version=2,
    )
    return None if value is None else value.decode()


def _is_streamed(handler: RequestHandler) -> bool:
    """Return whether the handler reads the request body as a stream."""
    return getattr(handler, "_stream_request_body", False) is True


def _token_in(header: str) -> str:
    """Return the token of an ``Authorization`` header; empty if it contains none."""
    scheme, _, value = header.partition(" ")
    return value.strip() if scheme.lower() in ("bearer", "token") else ""


def _key_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
