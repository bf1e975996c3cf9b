"""Client of image registries: the distribution protocol with token and basic authentication.

Its methods block, so call them in threads; several threads may use one client.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urljoin, urlsplit

from bai_services.core.cluster.manifests import (
    INDEX_TYPES,
    MANIFEST_TYPES,
    ImageConfig,
    Manifest,
    Platform,
    parse_challenge,
    parse_config,
    parse_manifest,
    parse_repositories,
    parse_tags,
    parse_token,
)
from bai_services.core.cluster.registries import (
    api_url,
    image_name,
    matches,
    repository_may_match,
)
from bai_services.core.errors import InvalidRequest
from bai_services.core.sessions.callbacks import AllowedTargets

from ..imports.transfer import SourceError, shut_down
from ..outgoing import (
    RetryableError,
    allowed_addresses,
    connect,
    origin_of,
    problem_of,
    redirect_target,
    time_limit,
)
from ..sessions.callback_calls import Lookup, look_up

T = TypeVar("T")

# Total time limit of one request with its response.
REQUEST_SECONDS = 30.0
MAX_LIST_BYTES = 4 * 2**20
MAX_MANIFEST_BYTES = 4 * 2**20
MAX_CONFIG_BYTES = 4 * 2**20
MAX_TOKEN_BYTES = 2**16
MAX_PAGES = 200
PAGE_SIZE = 100
MAX_LISTED_REPOSITORIES = 5_000
MAX_TAGS = 5_000
# Maximum number of cached image configurations.
MAX_KEPT_CONFIGS = 500
MAX_REDIRECTS = 4
MAX_ATTEMPTS = 3
FIRST_DELAY_SECONDS = 0.5
# A token that expires sooner is not used for another request.
TOKEN_RESERVE_SECONDS = 10.0

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MANIFEST_ACCEPT = ", ".join((*INDEX_TYPES, *MANIFEST_TYPES))
_Origin = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """URL and credentials of a registry; ``ca_certificate``: additional roots, as PEM."""

    url: str
    host: str
    username: str = ""
    password: str = field(default="", repr=False)
    ca_certificate: str = ""


@dataclass(frozen=True, slots=True)
class FoundImage:
    """An image of a registry. ``digest`` is the digest of the tag's manifest or image index."""

    name: str
    architecture: str
    digest: str
    size_bytes: int
    labels: Mapping[str, str]


class TagNotFound(SourceError):
    """The registry has no such repository or tag."""


@dataclass(frozen=True, slots=True)
class _Request:
    """A request for the path ``target``; ``max_bytes``: maximum size of the response body."""

    target: str
    scope: str
    max_bytes: int
    accept: str = "application/json, */*"
    method: str = "GET"


@dataclass(frozen=True, slots=True)
class _Response:
    status: int
    headers: http.client.HTTPMessage
    body: bytes


class RegistryClient:
    """Reads one registry. Credentials are sent only to it and to its token service.

    Connections are kept for the next request to the same origin.
    """

    def __init__(
        self,
        access: RegistryAccess,
        targets: AllowedTargets,
        lookup: Lookup = look_up,
        request_seconds: float = REQUEST_SECONDS,
        first_delay_seconds: float = FIRST_DELAY_SECONDS,
    ) -> None:
        self._access = access
        self._base = api_url(access.url)
        self._targets = targets
        self._lookup = lookup
        self._request_seconds = request_seconds
        self._first_delay = first_delay_seconds
        self._cancelled = threading.Event()
        self._lock = threading.Lock()
        self._idle: dict[_Origin, list[http.client.HTTPConnection]] = defaultdict(list)
        self._open: set[http.client.HTTPConnection] = set()
        self._token_lock = threading.Lock()
        # Token and monotonic expiry by scope.
        self._tokens: dict[str, tuple[str, float]] = {}
        self._is_basic = False
        # Configurations by digest: the tags of a repository often have the same image.
        self._configs: dict[str, ImageConfig] = {}
        self._tls = ssl.create_default_context()
        if access.ca_certificate:
            self._tls.load_verify_locations(cadata=access.ca_certificate)

    def close(self) -> None:
        """Close all connections; requests of other threads fail."""
        self._cancelled.set()
        with self._lock:
            for connection in self._open:
                if connection.sock is not None:
                    shut_down(connection.sock)
            for connections in self._idle.values():
                for connection in connections:
                    connection.close()
            self._idle.clear()

    def tags(self, repositories: Sequence[str], patterns: Sequence[str]) -> list[tuple[str, str]]:
        """Return the pairs (repository, tag) that match, at most ``MAX_TAGS``.

        Without ``repositories``, all repositories of the registry's catalog are searched.

        Raises
        ------
        SourceError
            If the registry cannot be read, or too many tags match.
        """
        found: list[tuple[str, str]] = []
        for repository in repositories or self._repositories():
            if not repository_may_match(repository, patterns):
                continue
            path = f"/v2/{quote(repository)}/tags/list"
            try:
                for page in self._pages(path, _pull_scope(repository)):
                    tags = _parsed(parse_tags, page)
                    found += [
                        (repository, tag) for tag in tags if matches(repository, tag, patterns)
                    ]
                    if len(found) > MAX_TAGS:
                        raise SourceError(f"more than {MAX_TAGS} tags match; use narrower patterns")
            except TagNotFound:
                # The catalog lists a repository even if all its tags were deleted.
                if repositories:
                    raise
        return list(dict.fromkeys(found))

    def is_deleted(self, repository: str, tag: str) -> bool:
        """Return whether the registry confirms that it has no such tag."""
        request = _manifest_request(repository, tag, method="HEAD")
        return self._authorized(request).status == HTTPStatus.NOT_FOUND

    def inspect(self, repository: str, tag: str, known: Mapping[str, str]) -> list[FoundImage]:
        """Return the images of a tag, one for each architecture.

        Empty if the tag has the digest that ``known`` contains for the image's name.

        Raises
        ------
        SourceError
            If the image cannot be read.
        """
        try:
            name = image_name(self._access.host, repository, tag)
        except InvalidRequest as error:
            raise SourceError(error.message) from None
        # Some registries limit the number of pulls; a HEAD request does not count as a pull.
        if name in known and self._current_digest(repository, tag) == known[name]:
            return []
        body = self._manifest(repository, tag)
        digest = _digest_of(body)
        if known.get(name) == digest:
            return []
        parsed = _parsed(parse_manifest, _json(body))
        if isinstance(parsed, Manifest):
            config = self._config(repository, parsed.config_digest)
            return [FoundImage(name, config.architecture, digest, parsed.size_bytes, config.labels)]
        return [self._of_platform(repository, name, digest, platform) for platform in parsed]

    def _of_platform(
        self, repository: str, name: str, digest: str, platform: Platform
    ) -> FoundImage:
        body = self._manifest(repository, platform.digest)
        if _digest_of(body) != platform.digest:
            raise SourceError("a manifest does not match its digest")
        manifest = _parsed(parse_manifest, _json(body))
        if not isinstance(manifest, Manifest):
            raise SourceError("an image index refers to another index")
        labels = self._config(repository, manifest.config_digest).labels
        return FoundImage(name, platform.architecture, digest, manifest.size_bytes, labels)

    def _current_digest(self, repository: str, tag: str) -> str:
        """Return the digest of a tag; empty if the response to a HEAD request lacks it."""
        response = self._authorized(_manifest_request(repository, tag, method="HEAD"))
        if response.status != HTTPStatus.OK:
            return ""
        return response.headers.get("Docker-Content-Digest") or ""

    def _manifest(self, repository: str, reference: str) -> bytes:
        return self._get(_manifest_request(repository, reference)).body

    def _config(self, repository: str, digest: str) -> ImageConfig:
        if digest in self._configs:
            return self._configs[digest]
        path = f"/v2/{quote(repository)}/blobs/{quote(digest)}"
        body = self._get(_Request(path, _pull_scope(repository), MAX_CONFIG_BYTES)).body
        if _digest_of(body) != digest:
            raise SourceError("the configuration of the image does not match its digest")
        config = _parsed(parse_config, _json(body))
        if len(self._configs) < MAX_KEPT_CONFIGS:
            self._configs[digest] = config
        return config

    def _repositories(self) -> list[str]:
        found: list[str] = []
        for page in self._pages("/v2/_catalog", "registry:catalog:*"):
            found += _parsed(parse_repositories, page)
            if len(found) > MAX_LISTED_REPOSITORIES:
                raise SourceError(
                    f"the registry has more than {MAX_LISTED_REPOSITORIES} repositories; name "
                    "those to scan"
                )
        return list(dict.fromkeys(found))

    def _pages(self, path: str, scope: str) -> Iterator[Any]:
        target = f"{path}?n={PAGE_SIZE}"
        for _ in range(MAX_PAGES):
            response = self._get(_Request(target, scope, MAX_LIST_BYTES))
            yield _json(response.body)
            following = _next_page(response.headers.get("Link"))
            if following is None:
                return
            url = urljoin(self._base + target, following)
            if origin_of(url) != origin_of(self._base) or not _is_plain(url):
                raise SourceError("the next page of the list is on another host")
            parts = urlsplit(url)
            target = f"{parts.path}?{parts.query}"
        raise SourceError(f"a list of the registry has more than {MAX_PAGES} pages")

    def _get(self, request: _Request) -> _Response:
        """Request a path of the registry, with credentials if the registry requires them.

        Raises
        ------
        SourceError
            If the registry does not respond with success.
        """
        response = self._authorized(request)
        if response.status in (401, 403):
            raise SourceError(
                f"the registry refuses access (status {response.status}); check the user name, "
                "the password and their permissions"
            )
        if response.status == HTTPStatus.NOT_FOUND:
            raise TagNotFound("the registry has no such repository or tag (status 404)")
        if response.status != HTTPStatus.OK:
            raise SourceError(f"the registry responded with status {response.status}")
        return response

    def _authorized(self, request: _Request) -> _Response:
        """Return the response to a request, whatever its status."""
        sent = self._authorization(request.scope)
        response = self._repeated(request)
        if response.status == 401 and self._authenticate(response, request.scope, sent):
            response = self._repeated(request)
        return response

    def _repeated(self, request: _Request) -> _Response:
        """Return the response; repeat the request after a failure of the network or the server."""
        delay = self._first_delay
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                headers = {"Accept": request.accept, **self._authorization(request.scope)}
                response = self._followed(self._base + request.target, headers, request)
                if response.status != 429 and response.status < 500:
                    return response
                problem = RetryableError(f"the registry responded with status {response.status}")
            except RetryableError as error:
                problem = error
            if attempt == MAX_ATTEMPTS:
                break
            if self._cancelled.wait(delay):
                raise SourceError("the scan was cancelled")
            delay *= 2
        raise problem

    def _followed(self, url: str, headers: Mapping[str, str], request: _Request) -> _Response:
        """Return the response after redirects; another origin receives no credentials."""
        for _ in range(MAX_REDIRECTS + 1):
            response = self._exchange(url, headers, request)
            if response.status not in _REDIRECTS:
                return response
            target = redirect_target(url, response.headers.get("Location"))
            if origin_of(target) != origin_of(url):
                headers = {k: v for k, v in headers.items() if k != "Authorization"}
            url = target
        raise SourceError(f"the registry redirects more than {MAX_REDIRECTS} times")

    def _authorization(self, scope: str) -> dict[str, str]:
        if self._is_basic:
            return {"Authorization": self._basic()}
        token, expires_at = self._tokens.get(scope, ("", 0.0))
        if not token or time.monotonic() > expires_at - TOKEN_RESERVE_SECONDS:
            return {}
        return {"Authorization": f"Bearer {token}"}

    def _basic(self) -> str:
        pair = f"{self._access.username}:{self._access.password}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"

    def _authenticate(self, response: _Response, scope: str, sent: Mapping[str, str]) -> bool:
        """Prepare the required credentials; return False if only those in ``sent`` are
        available."""
        challenge = _parsed(parse_challenge, response.headers.get("WWW-Authenticate") or "")
        if challenge.scheme == "basic":
            self._is_basic = bool(self._access.password)
            return self._is_basic and not sent
        with self._token_lock:
            if self._authorization(scope) not in ({}, sent):
                return True  # another thread has renewed the token
            self._tokens[scope] = self._token(challenge.realm, challenge.service, scope)
        return True

    def _token(self, realm: str, service: str, scope: str) -> tuple[str, float]:
        parts = urlsplit(realm)
        if not _is_plain(realm) or parts.fragment:
            raise SourceError("the URL of the registry's token service is not valid")
        if origin_of(self._base)[0] == "https" and origin_of(realm)[0] != "https":
            raise SourceError("the token service of the registry does not use https")
        query = urlencode({"service": service, "scope": scope})
        url = f"{realm}{'&' if parts.query else '?'}{query}"
        headers = {"Accept": "application/json"}
        if self._access.password:
            headers["Authorization"] = self._basic()
        response = self._followed(url, headers, _Request(url, scope, MAX_TOKEN_BYTES))
        if response.status != 200:
            raise SourceError(
                f"the token service of the registry responded with status {response.status}; "
                "check the user name and the password"
            )
        token, seconds = _parsed(parse_token, _json(response.body))
        # A token with a short lifetime must be usable for at least the current request.
        return token, time.monotonic() + max(seconds, 2 * TOKEN_RESERVE_SECONDS)

    def _exchange(self, url: str, headers: Mapping[str, str], request: _Request) -> _Response:
        """Send one request, and read its response of at most ``max_bytes``."""
        origin = origin_of(url)
        for may_reuse in (True, False):
            connection, is_reused = self._connection(url, origin, may_reuse=may_reuse)
            try:
                with time_limit(connection.sock, self._request_seconds):
                    return self._on_connection(connection, url, headers, request)
            except ConnectionError as error:
                # The registry may have closed a connection that was idle.
                if not is_reused or self._cancelled.is_set():
                    raise RetryableError(problem_of(error)) from None
            except (OSError, http.client.HTTPException) as error:
                raise RetryableError(problem_of(error)) from None
        raise AssertionError("the second connection is not an idle one")

    def _on_connection(
        self,
        connection: http.client.HTTPConnection,
        url: str,
        headers: Mapping[str, str],
        request: _Request,
    ) -> _Response:
        is_reusable, max_bytes = False, request.max_bytes
        try:
            parts = urlsplit(url)
            path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
            connection.request(
                request.method,
                path,
                None,
                {"User-Agent": "bai-hub", "Accept-Encoding": "identity"} | {**headers},
            )
            response = connection.getresponse()
            body = response.read(max_bytes + 1)
            if len(body) > max_bytes:
                raise SourceError(f"a response of the registry has more than {max_bytes} bytes")
            if response.length:
                raise http.client.IncompleteRead(body, response.length)
            is_reusable = not response.will_close
            return _Response(response.status, response.headers, body)
        finally:
            with self._lock:
                self._open.discard(connection)
                if is_reusable and not self._cancelled.is_set():
                    self._idle[origin_of(url)].append(connection)
                else:
                    connection.close()

    def _connection(
        self, url: str, origin: _Origin, *, may_reuse: bool
    ) -> tuple[http.client.HTTPConnection, bool]:
        """Return a connection to an allowed address of the URL's host, and whether it was idle."""
        with self._lock:
            if self._cancelled.is_set():
                raise SourceError("the scan was cancelled")
            if may_reuse and self._idle[origin]:
                connection = self._idle[origin].pop()
                self._open.add(connection)
                return connection, True
        scheme, host, port = origin
        # Connect to the checked address: a second lookup could return a different address.
        addresses = allowed_addresses(url, self._targets, self._lookup, "scans of images")
        try:
            connected = connect(addresses, port, self._request_seconds)
            if scheme == "https":
                try:
                    connected = self._tls.wrap_socket(connected, server_hostname=host)
                except BaseException:
                    connected.close()
                    raise
        except OSError as error:
            raise RetryableError(problem_of(error)) from None
        connection = http.client.HTTPConnection(host, port)
        connection.auto_open = 0
        connection.sock = connected
        connection.default_port = 443 if scheme == "https" else 80
        with self._lock:
            self._open.add(connection)
        return connection, False


def _manifest_request(repository: str, reference: str, method: str = "GET") -> _Request:
    path = f"/v2/{quote(repository)}/manifests/{quote(reference)}"
    scope = _pull_scope(repository)
    return _Request(path, scope, MAX_MANIFEST_BYTES, _MANIFEST_ACCEPT, method)


def _pull_scope(repository: str) -> str:
    return f"repository:{repository}:pull"


def _digest_of(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise SourceError("the registry returned no valid JSON") from None


def _parsed(parse: Callable[[Any], T], value: Any) -> T:
    try:
        return parse(value)
    except ValueError as error:
        raise SourceError(str(error)) from None


def _next_page(link: str | None) -> str | None:
    """Return the target of a Link header with the relation ``next``."""
    target, _, parameters = (link or "")[:4096].partition(">")
    is_next = target.startswith("<") and 'rel="next"' in parameters.replace(
        "rel=next", 'rel="next"'
    )
    return target[1:] if is_next else None


def _is_plain(url: str) -> bool:
    return url.isascii() and url.isprintable() and " " not in url
