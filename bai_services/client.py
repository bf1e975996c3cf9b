"""REST client of the CLI, sessions and scripts; Hub and agent use ``service_client.py``."""

from __future__ import annotations

import ipaddress
import json
import os
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from typing import Any

import httpx

from bai_services.core import errors
from bai_services.core.accounts import signature

_ERRORS = errors.by_code()
_BY_STATUS: Mapping[int, type[errors.BaiError]] = {
    401: errors.NotSignedIn,
    403: errors.Forbidden,
    404: errors.NotFound,
    413: errors.TooLarge,
    429: errors.RateLimited,
    502: errors.Unavailable,
    503: errors.Unavailable,
    504: errors.Unavailable,
}


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer credential: a Hub token, or the secret of the Hub or of the agents.

    With this secret, the Hub or an agent authenticates to the manager (see ``service_client.py``).
    """

    value: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Keypair:
    access_key: str
    secret_key: str = field(repr=False)


class _TokenAuth(httpx.Auth):
    def __init__(self, token: Token) -> None:
        self._token = token

    def auth_flow(self, request: httpx.Request) -> Any:
        request.headers["Authorization"] = f"Bearer {self._token.value}"
        yield request


class _KeypairAuth(httpx.Auth):
    def __init__(self, keypair: Keypair, clock: Callable[[], datetime]) -> None:
        self._keypair = keypair
        self._clock = clock

    def auth_flow(self, request: httpx.Request) -> Any:
        now = self._clock().replace(microsecond=0)
        digest = _digest_of(request)
        if digest:
            request.headers[signature.DIGEST_HEADER] = digest
        signed = signature.sign(
            self._keypair.secret_key,
            method=request.method,
            path=request.url.raw_path.decode(),
            host=request.headers["Host"],
            date=now,
            content_type=request.headers.get("Content-Type", ""),
            content_digest=digest,
        )
        request.headers["Date"] = now.isoformat()
        request.headers[signature.VERSION_HEADER] = signature.VERSION
        request.headers["Authorization"] = signature.authorization(self._keypair.access_key, signed)
        yield request


def _digest_of(request: httpx.Request) -> str:
    """Return the digest of a JSON body; empty for any other body, such as a file upload."""
    is_json = request.headers.get("Content-Type", "").startswith("application/json")
    return signature.content_digest(request.content) if is_json else ""


def _ssl_context() -> ssl.SSLContext:
    return _context_of(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@cache
def _context_of(_file: str | None, _directory: str | None) -> ssl.SSLContext:
    # Cached, because loading the certificate authorities takes longer than a typical call. The
    # arguments are the variables that the SSL library reads.
    return httpx.create_ssl_context(trust_env=True)


class Client:
    """Call ``{url}/api/v1`` and return the decoded JSON responses.

    Calls raise ``Unavailable`` if the manager is unreachable, and the ``BaiError`` named in an
    error response. ``http`` is the underlying HTTP client with the same base URL and credential.
    ``clock`` returns the date of requests that a keypair signs.
    """

    def __init__(
        self,
        url: str,
        credential: Token | Keypair | None = None,
        timeout_seconds: float = 30,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        auth: httpx.Auth | None = None
        if isinstance(credential, Token):
            auth = _TokenAuth(credential)
        elif isinstance(credential, Keypair):
            auth = _KeypairAuth(credential, clock)
        self.url = url.rstrip("/")
        self.http = httpx.AsyncClient(
            base_url=self.url + "/api/v1",
            auth=auth,
            timeout=timeout_seconds,
            # Proxies configured in the environment are for external hosts, not for this machine or
            # private networks. Certificate authorities in the environment are for all hosts.
            trust_env=not is_local(httpx.URL(self.url).host),
            verify=_ssl_context(),
        )

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self.http.aclose()

    async def get(self, path: str, /, timeout_seconds: float | None = None, **query: Any) -> Any:
        return await self.call("GET", path, query=query, timeout_seconds=timeout_seconds)

    async def post(self, path: str, body: Any = None, timeout_seconds: float | None = None) -> Any:
        return await self.call("POST", path, body=body, timeout_seconds=timeout_seconds)

    async def put(self, path: str, body: Any = None) -> Any:
        return await self.call("PUT", path, body=body)

    async def patch(self, path: str, body: Any) -> Any:
        return await self.call("PATCH", path, body=body)

    async def delete(self, path: str, /, **query: Any) -> Any:
        return await self.call("DELETE", path, query=query)

    async def items(self, path: str, /, **query: Any) -> AsyncIterator[dict[str, Any]]:
        """Yield every item of a list, page by page."""
        offset = 0
        while True:
            page = await self.get(path, offset=offset, limit=500, **query)
            for item in page["items"]:
                yield item
            offset += len(page["items"])
            if not page["items"] or offset >= page["total"]:
                return

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        content: AsyncIterator[bytes] | bytes | None = None,
        timeout_seconds: float | None = None,
    ) -> Any:
        """Send a request and return the decoded JSON response, None if it has no body."""
        response = await self.send(
            method, path, body=body, query=query, content=content, timeout_seconds=timeout_seconds
        )
        try:
            return response.json() if response.content else None
        except ValueError:
            raise not_a_manager(self.url) from None

    async def send(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        content: AsyncIterator[bytes] | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> httpx.Response:
        """Send a request and return the response, for callers that need its headers."""
        options: dict[str, Any] = {} if timeout_seconds is None else {"timeout": timeout_seconds}
        if body is not None:
            options["json"] = body
        if content is not None:
            options["content"] = content
        if headers is not None:
            options["headers"] = dict(headers)
        try:
            response = await self.http.request(method, path, params=dict(query or {}), **options)
        except httpx.TransportError as error:
            raise unreachable(self.url, error) from error
        raise_for_error(response)
        return response

    @asynccontextmanager
    async def stream(
        self, path: str, /, headers: Mapping[str, str] | None = None, **query: Any
    ) -> AsyncIterator[httpx.Response]:
        """Open a GET request whose response is read in chunks (downloads, events)."""
        try:
            async with self.http.stream(
                "GET", path, params=query, headers=dict(headers or {})
            ) as response:
                if not response.is_success:
                    await response.aread()
                raise_for_error(response)
                yield response
        except httpx.TransportError as error:
            raise unreachable(self.url, error) from error


def raise_for_error(response: httpx.Response) -> None:
    """Raise the error of an error response or redirect; see ``raise_for_status``."""
    if response.is_error or response.is_redirect:
        location = response.headers.get("Location", "")
        raise_for_status(response.url.host, response.status_code, response.content, location)


def raise_for_status(host: str, status: int, content: bytes, location: str = "") -> None:
    """Raise the error that a response of ``host`` reports; do nothing for a successful response.

    Raises
    ------
    BaiError
        The class that the response names, else the class for its status.
    """
    if status < HTTPStatus.MULTIPLE_CHOICES:
        return
    if status < HTTPStatus.BAD_REQUEST:
        raise errors.BaiError(f"{host} redirects to {location}; use that URL")
    default = _BY_STATUS.get(status, errors.BaiError)
    try:
        error = error_of(json.loads(content), default)
    except (ValueError, KeyError, TypeError):
        # This is not a response of the manager, but of a proxy or the Hub.
        raise default(f"{host} responded with status {status}") from None
    raise error


def error_of(
    content: Mapping[str, Any], default: type[errors.BaiError] = errors.BaiError
) -> errors.BaiError:
    """Return the error that a response describes; ``default``: class for an unknown code.

    Raise KeyError or TypeError if the format is different.
    """
    cls = _ERRORS.get(content["error"]) or default
    return cls(content["message"], **(content.get("details") or {}))


def is_local(host: str) -> bool:
    """Return whether ``host`` is ``localhost`` or an IP address of a private network."""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return host == "localhost"


def is_loopback(host: str) -> bool:
    """Return whether ``host`` is ``localhost`` or a loopback IP address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def unreachable(url: str, error: BaseException) -> errors.Unavailable:
    """Return the error for a manager that does not respond. ``error`` is the connection error."""
    cause: BaseException | None = error
    while cause is not None:
        # aiohttp's error is of this class too, but without the reason, which its cause has.
        reason = getattr(cause, "verify_message", None)
        if isinstance(cause, ssl.SSLCertVerificationError) and reason is not None:
            return errors.Unavailable(
                f"the certificate of {url} is not accepted ({reason.rstrip('.')}); if it is "
                "from a certificate authority of your own, set SSL_CERT_FILE to the file of that "
                "authority's certificate"
            )
        cause = cause.__cause__ or cause.__context__
    return errors.Unavailable(f"the resource manager at {url} cannot be reached; try again shortly")


def not_a_manager(url: str) -> errors.BaiError:
    """Return the error for a response that is not JSON."""
    return errors.BaiError(f"{url} does not respond like a resource manager")
