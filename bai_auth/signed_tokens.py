"""Sign-in with a token that another site has signed: `/hub/token-login?sToken=…&next=…`.

The token is a JSON Web Token that is valid for a few minutes and only once. It proves an identity,
like a sign-in at an OpenID provider; the role and the domain never come from the token.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from jupyterhub.handlers import BaseHandler

from bai_services.core import errors
from bai_services.core.accounts.external_identities import MAX_SIGNED_TOKEN_SECONDS
from bai_services.i18n import catalogue

from .external_sign_in import ExternalSignInHandler
from .failures import SignInFailed
from .openid.client import ALGORITHMS, LEEWAY_SECONDS, external_user
from .openid.settings import Provider, read_providers

PARAMETER = "sToken"
MAX_TOKEN_CHARACTERS = 4096
MAX_ID_CHARACTERS = 255
_REQUIRED = ("iss", "sub", "aud", "iat", "exp", "jti")
_SETTINGS = frozenset(
    {
        *("name", "issuer", "audience", "public_key_file", "username_claim", "creates_accounts"),
        *("domain", "projects", "trusts_email", "links_email", "skips_one_time_code"),
    }
)


# Errors of PyJWT, and of the JSON parser for a deeply nested document or an infinite number.
_ERRORS = (jwt.PyJWTError, TypeError, ValueError, OverflowError, RecursionError)


class InvalidToken(Exception):
    """The token is not valid for this hub; the message contains no part of the token."""


@dataclass(frozen=True, slots=True)
class Site:
    """A site whose tokens are accepted. ``provider.client_id`` is the required audience."""

    provider: Provider
    public_key: Any = field(repr=False)


@dataclass(frozen=True, slots=True)
class Accepted:
    """The user of a valid token, and a hash to detect a replayed token."""

    site: Site
    user: dict[str, Any]
    token_hash: str
    expires_at: datetime


def read_sites(entries: Sequence[Mapping[str, Any]]) -> dict[str, Site]:
    """Return the sites by issuer, with their public keys.

    Raises
    ------
    ValueError
        If an entry is invalid, or a key cannot be read; the message names the site.
    """
    sites: dict[str, Site] = {}
    for entry in entries:
        name = str(entry.get("name", ""))
        if unknown := sorted(entry.keys() - _SETTINGS):
            raise ValueError(f"site {name!r}: unknown setting {unknown[0]!r}")
        try:
            values = {**entry, "client_id": entry["audience"]}
            path = Path(values.pop("public_key_file"))
            del values["audience"]
            public_key = load_pem_public_key(path.read_bytes())
        except KeyError as error:
            raise ValueError(f"site {name!r}: {error.args[0]} is missing") from error
        except (OSError, ValueError, TypeError) as error:
            raise ValueError(f"site {name!r}: public_key_file: {error}") from error
        (provider,) = read_providers([values]).values()
        if provider.issuer in sites:
            raise ValueError(f"site {name!r}: the issuer is listed twice")
        sites[provider.issuer] = Site(provider, public_key)
    return sites


def read_token(sites: Mapping[str, Site], token: str) -> Accepted:
    """Verify a token: signature, issuer, audience, times and lifetime.

    Raises
    ------
    InvalidToken
        If the token is not valid.
    """
    if not 0 < len(token) <= MAX_TOKEN_CHARACTERS:
        raise InvalidToken("the token is missing or too long")
    try:
        issuer = jwt.decode(token, options={"verify_signature": False}).get("iss")
        site = sites.get(issuer) if isinstance(issuer, str) else None
        if site is None:
            raise InvalidToken("the issuer is not known")
        claims = jwt.decode(
            token,
            site.public_key,
            # Only signatures with a public key are accepted: neither "none" nor HMAC.
            algorithms=list(ALGORITHMS),
            audience=site.provider.client_id,
            issuer=site.provider.issuer,
            leeway=LEEWAY_SECONDS,
            options={"require": list(_REQUIRED)},
        )
    except _ERRORS as error:
        # The messages of PyJWT contain no values of the token.
        raise InvalidToken(str(error)) from error
    _require_short(claims)
    token_hash = hashlib.sha256(f"{site.provider.issuer}\n{claims['jti']}".encode()).hexdigest()
    return Accepted(
        site,
        external_user(site.provider, claims),
        token_hash,
        # This is later than any time at which the token is accepted.
        datetime.fromtimestamp(claims["exp"] + 2 * LEEWAY_SECONDS, UTC),
    )


def _require_short(claims: Mapping[str, Any]) -> None:
    """Raise unless the token has a short lifetime, and identifiers of a reasonable length."""
    for name in ("sub", "jti"):
        value = claims[name]
        if not isinstance(value, str) or not 0 < len(value) <= MAX_ID_CHARACTERS or "\0" in value:
            raise InvalidToken(f"{name} is not valid")
    if any(type(claims[name]) not in (int, float) for name in ("exp", "iat")):
        raise InvalidToken("a time is not a number")
    lifetime = claims["exp"] - claims["iat"]
    if not 0 < lifetime <= MAX_SIGNED_TOKEN_SECONDS:
        raise InvalidToken(f"the lifetime exceeds {MAX_SIGNED_TOKEN_SECONDS} s")


class SignedTokenHandler(ExternalSignInHandler):
    """Signs a user in with the token in the URL, and redirects to a URL without it."""

    SUPPORTED_METHODS = ("GET",)

    async def get(self) -> None:
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header("Cache-Control", "no-store")
        target = self.get_query_argument("next", "")
        try:
            self._require_navigation()
            if self.current_user is not None:
                # Ignore the token: a link must not sign this browser in as another user.
                self.request.arguments = {"next": [target.encode()]}
                self.request.query = ""
                self.redirect(self.get_next_url(self.current_user))
                return
            accepted = await self._redeem(self.get_query_argument(PARAMETER, ""))
            await self.sign_in_external(target, accepted.user, accepted.site.provider.rules)
        except SignInFailed as failed:
            await self.render_failure(failed)

    def _require_navigation(self) -> None:
        """Reject requests by images, frames, scripts and prefetching."""
        headers = self.request.headers
        is_document = headers.get("Sec-Fetch-Dest", "document") == "document"
        if not is_document or "prefetch" in headers.get("Sec-Purpose", ""):
            raise self._failed("the request does not open a page")

    async def _redeem(self, token: str) -> Accepted:
        try:
            accepted = read_token(self.authenticator.signed_token_sites_by_issuer, token)
        except InvalidToken as error:
            raise self._failed(str(error)) from error
        try:
            await self.authenticator.account_calls.redeem_signed_token(
                accepted.token_hash, accepted.expires_at
            )
        except errors.Conflict as error:
            raise self._failed("the token was used before") from error
        except errors.BaiError as error:
            self.log.error("A signed token was not checked: %s", error)
            text = catalogue.translator_for(self)("sign_in.unavailable")
            raise SignInFailed(HTTPStatus.SERVICE_UNAVAILABLE, text) from error
        return accepted

    def _failed(self, reason: str) -> SignInFailed:
        self.log.warning("Signed token refused: %s", reason)
        text = catalogue.translator_for(self)("openid.invalid_token")
        return SignInFailed(HTTPStatus.FORBIDDEN, text)


HANDLERS: list[tuple[str, type[BaseHandler]]] = [("/token-login", SignedTokenHandler)]
