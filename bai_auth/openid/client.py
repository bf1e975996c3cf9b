"""The client side of OpenID Connect Core 1.0: discovery, authorization code with PKCE, id token."""

from __future__ import annotations

import asyncio
import base64
import functools
import hashlib
import hmac
import json
import secrets
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import jwt

from .settings import Provider, check_url

# Only signatures with a public key are accepted: "none" proves nothing, and the key of HMAC would
# be the client secret.
ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
TIMEOUT_SECONDS = 10.0
# Accepted difference between the clocks of the Hub and the provider.
LEEWAY_SECONDS = 60
METADATA_TTL_SECONDS = 3600.0
FAILURE_TTL_SECONDS = 2.0
# Limit the number of codes that are redeemed at a time: anyone can send codes without a sign-in.
MAX_CONCURRENT = 16
# Minimum time between two downloads of the keys; an unknown key id causes a download.
MIN_KEYS_SECONDS = 30.0
MAX_RESPONSE_BYTES = 2**20
MAX_CLAIM_CHARACTERS = 255


class ProviderUnavailable(Exception):
    """The provider does not respond, or violates the specification."""


class InvalidResponse(Exception):
    """The provider's response is not valid for this sign-in."""


@dataclass(frozen=True, slots=True)
class Flow:
    """The secrets of one sign-in: ``state`` and ``nonce`` return from the provider."""

    state: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    nonce: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48), repr=False)

    @property
    def challenge(self) -> str:
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


class OpenIdClient:
    """Signs users in at one provider; caches its metadata and keys."""

    def __init__(self, provider: Provider, clock: Callable[[], float] = time.monotonic) -> None:
        self.provider = provider
        self._clock = clock
        self._metadata: tuple[float, dict[str, Any]] | None = None
        self._failure: tuple[float, str] | None = None
        self._keys: tuple[float, jwt.PyJWKSet] | None = None
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)
        self._lock = asyncio.Lock()

    async def authorization_url(self, flow: Flow, redirect_uri: str) -> str:
        """Return the provider's authorization URL for the browser.

        Raises
        ------
        ProviderUnavailable
            If the metadata cannot be read.
        """
        endpoint = str((await self._discovered())["authorization_endpoint"])
        query = {
            "response_type": "code",
            "client_id": self.provider.client_id,
            "redirect_uri": redirect_uri,
            "scope": " ".join(self.provider.scopes),
            "state": flow.state,
            "nonce": flow.nonce,
            "code_challenge": flow.challenge,
            "code_challenge_method": "S256",
        }
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    async def claims(self, flow: Flow, code: str, redirect_uri: str) -> dict[str, Any]:
        """Redeem an authorization code; return the verified claims of the id token.

        If the id token lacks the user name or the e-mail address, the claims of the userinfo
        endpoint are added, if the provider has this endpoint.

        Raises
        ------
        ProviderUnavailable
            If the provider does not respond as specified, or too many sign-ins are in progress.
        InvalidResponse
            If the code is rejected, the id token is not valid for this sign-in, or the userinfo
            endpoint describes another user.
        """
        if self._slots.locked():
            raise ProviderUnavailable("too many sign-ins are in progress")
        async with self._slots:
            return await self._claims(flow, code, redirect_uri)

    async def _claims(self, flow: Flow, code: str, redirect_uri: str) -> dict[str, Any]:
        metadata = await self._discovered()
        tokens = await self._redeem(metadata, flow, code, redirect_uri)
        claims = await self._verified(metadata, str(tokens.get("id_token", "")), flow.nonce)
        wanted = {self.provider.username_claim, "email"}
        if wanted - claims.keys() and "userinfo_endpoint" in metadata:
            more = await self._user_info(metadata, str(tokens.get("access_token", "")))
            if more.get("sub") != claims["sub"]:
                raise InvalidResponse("the userinfo endpoint describes another user")
            if "email" in claims:
                # The flag must not come from the endpoint, which may describe another address.
                more.pop("email_verified", None)
            claims = {**more, **claims}
        return claims

    async def _discovered(self) -> dict[str, Any]:
        async with self._lock:
            if self._metadata is not None and self._metadata[0] > self._clock():
                return self._metadata[1]
            if self._failure is not None and self._failure[0] > self._clock():
                raise ProviderUnavailable(self._failure[1])
            try:
                metadata = await self._read_metadata()
            except ProviderUnavailable as error:
                # Cache the failure. Otherwise, each waiting request would query the provider and
                # wait for the timeout.
                self._failure = (self._clock() + FAILURE_TTL_SECONDS, str(error))
                raise
            self._metadata = (self._clock() + METADATA_TTL_SECONDS, metadata)
            return metadata

    async def _read_metadata(self) -> dict[str, Any]:
        issuer = self.provider.issuer
        url = issuer.rstrip("/") + "/.well-known/openid-configuration"
        metadata = await self._get(url)
        # OpenID Connect Discovery 4.3: without this check, an issuer could impersonate another
        # issuer.
        if metadata.get("issuer") != issuer:
            raise ProviderUnavailable(f"{url} describes another issuer")
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            try:
                check_url(str(metadata.get(name, "")))
            except ValueError as error:
                raise ProviderUnavailable(f"{url}: {name}: {error}") from None
        return metadata

    async def _redeem(
        self, metadata: Mapping[str, Any], flow: Flow, code: str, redirect_uri: str
    ) -> dict[str, Any]:
        client_id, secret = self.provider.client_id, self.provider.client_secret
        body = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": flow.verifier,
        }
        headers = {"Accept": "application/json"}
        methods = metadata.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        if not secret:
            body["client_id"] = client_id
        elif "client_secret_basic" in methods:
            # RFC 6749, 2.3.1: both parts are form-encoded first.
            pair = f"{quote(client_id, safe='')}:{quote(secret, safe='')}"
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        else:
            body |= {"client_id": client_id, "client_secret": secret}
        status, content = await self._send(
            "POST", str(metadata["token_endpoint"]), data=body, headers=headers
        )
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise ProviderUnavailable(f"the token endpoint responds with {status}")
        if status != HTTPStatus.OK:
            raise InvalidResponse(f"the code was rejected: {content.get('error')!r:.100}")
        return content

    async def _verified(
        self, metadata: Mapping[str, Any], id_token: str, nonce: str
    ) -> dict[str, Any]:
        key = await self._key_of(metadata, id_token)
        try:
            claims: dict[str, Any] = jwt.decode(
                id_token,
                key.key,
                algorithms=list(ALGORITHMS),
                audience=self.provider.client_id,
                issuer=self.provider.issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise InvalidResponse(f"the id token is invalid: {error}") from error
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise InvalidResponse("the id token has another nonce")
        has_several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if (has_several or "azp" in claims) and claims.get("azp") != self.provider.client_id:
            raise InvalidResponse("the id token is for another client")
        subject = claims["sub"]
        if not isinstance(subject, str) or not 0 < len(subject) <= MAX_CLAIM_CHARACTERS:
            raise InvalidResponse("the subject of the id token is invalid")
        return claims

    async def _key_of(self, metadata: Mapping[str, Any], id_token: str) -> jwt.PyJWK:
        """Return the key for the signature of a token; download the keys if this key is unknown."""
        try:
            header = jwt.get_unverified_header(id_token)
        except jwt.PyJWTError as error:
            raise InvalidResponse(f"the id token is invalid: {error}") from error
        async with self._lock:
            found = self._known_key(header)
            is_old = self._keys is None or self._keys[0] + MIN_KEYS_SECONDS <= self._clock()
            if found is None and is_old:
                document = await self._get(str(metadata["jwks_uri"]))
                try:
                    self._keys = (self._clock(), jwt.PyJWKSet.from_dict(document))
                except (jwt.PyJWTError, ValueError, TypeError) as error:
                    raise ProviderUnavailable(f"the keys are invalid: {error}") from error
                found = self._known_key(header)
        if found is None:
            raise InvalidResponse("the id token is signed with an unknown key")
        return found

    def _known_key(self, header: Mapping[str, Any]) -> jwt.PyJWK | None:
        keys = [] if self._keys is None else self._keys[1].keys
        signing = [key for key in keys if key.public_key_use in (None, "sig")]
        if "kid" not in header:
            return signing[0] if len(signing) == 1 else None
        return next((key for key in signing if key.key_id == header["kid"]), None)

    async def _user_info(self, metadata: Mapping[str, Any], token: str) -> dict[str, Any]:
        url = str(metadata["userinfo_endpoint"])
        try:
            check_url(url)
        except ValueError as error:
            raise ProviderUnavailable(f"userinfo_endpoint: {error}") from None
        return await self._get(url, headers={"Authorization": f"Bearer {token}"})

    async def _get(self, url: str, **options: Any) -> dict[str, Any]:
        status, content = await self._send("GET", url, **options)
        if status != HTTPStatus.OK:
            raise ProviderUnavailable(f"{url} responds with {status}")
        return content

    async def _send(self, method: str, url: str, **options: Any) -> tuple[int, dict[str, Any]]:
        """Send a request; return the status and the JSON object in the response."""
        try:
            # No redirects: only URLs of the configuration and the metadata are requested.
            async with (
                httpx.AsyncClient(timeout=TIMEOUT_SECONDS, verify=_tls_context()) as http,
                asyncio.timeout(TIMEOUT_SECONDS),
                http.stream(method, url, **options) as response,
            ):
                body = bytearray()
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > MAX_RESPONSE_BYTES:
                        raise ProviderUnavailable(f"the response of {url} is too large")
                content = json.loads(body)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError) as error:
            raise ProviderUnavailable(f"{url}: {type(error).__name__}") from error
        if not isinstance(content, dict):
            raise ProviderUnavailable(f"{url} does not respond with a JSON object")
        return response.status_code, content


@functools.cache
def _tls_context() -> ssl.SSLContext:
    """Return the TLS settings, cached because reading the root certificates takes 25 ms."""
    return httpx.create_ssl_context()


def external_user(provider: Provider, claims: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user with these claims in the format of the manager.

    A text is empty if its claim is missing, is not a string, is too long or contains NUL.
    """
    verified = claims.get("email_verified")
    return {
        "provider": provider.name,
        "issuer": provider.issuer,
        "subject": claims["sub"],
        "username": _text(claims, provider.username_claim).partition("@")[0],
        "email": _text(claims, "email"),
        # Some providers send the flag as text.
        "is_email_verified": provider.trusts_email or verified is True or verified == "true",
        "full_name": _text(claims, "name"),
    }


def _text(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    is_valid = isinstance(value, str) and len(value) <= MAX_CLAIM_CHARACTERS and "\0" not in value
    return str(value) if is_valid else ""
