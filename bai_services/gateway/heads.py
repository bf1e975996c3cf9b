"""Heads of requests and responses: which headers are forwarded or removed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

Headers = list[tuple[bytes, bytes]]

# Headers of a single connection (RFC 9110, 7.6.1), or written by the gateway itself.
HOP_BY_HOP = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization",
        b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade",
    }
)  # fmt: skip
# The address of the client's connection to HAProxy, which passes requests on to the gateway.
PEER_HEADER = b"x-bai-peer"
# Replicas must not get the token and the Hub's cookies, which browsers send with each request.
NOT_FOR_REPLICAS = HOP_BY_HOP | {
    b"authorization", b"cookie", b"content-length", b"expect", b"forwarded", b"x-real-ip",
    PEER_HEADER,
    # Removed because only the manager may send these headers to the relay of a replica.
    b"x-bai-explain", b"x-bai-metrics",
}  # fmt: skip
# Replicas trust these headers of proxies, for example X-Forwarded-User.
OF_PROXIES = b"x-forwarded-"
# Repetitions of these headers would be ambiguous: proxies in front of the gateway may use another
# value than the gateway.
NOT_REPEATABLE = frozenset({b"host", b"authorization"})
# Cookies of a replica would become cookies of the Hub's host.
NOT_FOR_CLIENTS = HOP_BY_HOP | {
    b"set-cookie", b"set-cookie2", b"content-length", b"authorization",
    # Browsers apply these headers to the whole host. They would send reports about the Hub's
    # addresses to a server of the replica's choice, delete the Hub's cookies, let a script of the
    # replica handle the Hub's pages, or use another server or only HTTPS.
    b"nel", b"report-to", b"reporting-endpoints", b"clear-site-data", b"service-worker-allowed",
    b"alt-svc", b"strict-transport-security", b"public-key-pins", b"expect-ct", b"accept-ch",
    b"critical-ch", b"origin-agent-cluster", b"set-login", b"secure-session-registration",
    b"sec-session-registration", b"use-as-dictionary",
    # Browsers would ask for a password of the Hub's host, which replicas never receive.
    b"www-authenticate",
    # With these headers, reverse proxies in front of the Hub would respond with the content of
    # another address, or with one of their files.
    b"x-accel-redirect", b"x-accel-buffering", b"x-accel-charset", b"x-accel-expires",
    b"x-accel-limit-rate", b"x-sendfile", b"x-lighttpd-send-file", b"x-reproxy-url",
}  # fmt: skip
# Pages of a replica have the Hub's host; this sandbox prevents them from acting as the user.
SAFETY = (
    b"Content-Security-Policy: sandbox allow-scripts allow-forms allow-popups allow-downloads\r\n"
    b"X-Content-Type-Options: nosniff\r\n"
)
# Status codes of gRPC.
_GRPC_UNKNOWN = 2
_GRPC_STATUSES = {
    HTTPStatus.BAD_REQUEST: 3,
    HTTPStatus.UNAUTHORIZED: 16,
    HTTPStatus.FORBIDDEN: 7,
    HTTPStatus.NOT_FOUND: 5,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: 8,
    HTTPStatus.TOO_MANY_REQUESTS: 8,
    HTTPStatus.NOT_IMPLEMENTED: 12,
    HTTPStatus.BAD_GATEWAY: 14,
    HTTPStatus.SERVICE_UNAVAILABLE: 14,
    HTTPStatus.GATEWAY_TIMEOUT: 4,
}
_GRPC_PLAIN = " !\"#$&'()*+,/:;<=>?@[\\]^`{|}"
_REASONS = {status.value: status.phrase.encode() for status in HTTPStatus}


def named_by_connection(headers: Headers) -> frozenset[bytes]:
    """Return the names in lower case that the header ``Connection`` lists."""
    names: set[bytes] = set()
    for name, value in headers:
        if name.lower() == b"connection":
            names |= {part.strip() for part in value.lower().split(b",")}
    return frozenset(names)


def canonical(name: bytes) -> bytes:
    """Return a header name in lower case, with ``-`` for ``_``, because WSGI servers treat both
    alike.
    """
    lower = name.lower()
    return lower.replace(b"_", b"-") if b"_" in lower else lower


def request_head(
    method: bytes, target: bytes, headers: Headers, own: Iterable[bytes], client: str
) -> bytes:
    """Return the head for a replica. ``own`` are complete header lines of the gateway."""
    excluded: frozenset[bytes] = NOT_FOR_REPLICAS
    for name, value in headers:
        if len(name) == 10 and name.lower() == b"connection" and value.lower() != b"keep-alive":
            excluded = NOT_FOR_REPLICAS | named_by_connection(headers)
    lines = [b"%b %b HTTP/1.1\r\n" % (method, target)]
    for name, value in headers:
        plain = canonical(name)
        if plain not in excluded and not plain.startswith(OF_PROXIES):
            lines.append(b"%b: %b\r\n" % (name, value))
    lines += own
    lines.append(b"X-Forwarded-For: %b\r\n\r\n" % client.encode("ascii", "replace"))
    return b"".join(lines)


def response_head(status: int, headers: Headers, own: Iterable[bytes]) -> bytes:
    excluded: frozenset[bytes] = NOT_FOR_CLIENTS
    for name, value in headers:
        if len(name) == 10 and name.lower() == b"connection" and value.lower() != b"keep-alive":
            excluded = NOT_FOR_CLIENTS | named_by_connection(headers)
    lines = [b"HTTP/1.1 %d %b\r\n" % (status, _REASONS.get(status, b""))]
    lines += [b"%b: %b\r\n" % pair for pair in headers if pair[0].lower() not in excluded]
    lines += own
    lines.append(SAFETY)
    lines.append(b"\r\n")
    return b"".join(lines)


class Refusal(Exception):
    """A refused request, with an error response in the JSON format of the manager."""

    def __init__(
        self, status: HTTPStatus, code: str, message: str, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.retry_after = retry_after

    def response(self, *, closes: bool, has_body: bool = True) -> bytes:
        body: dict[str, Any] = {"error": self.code, "message": self.message, "details": {}}
        more: dict[str, str] = {}
        if self.retry_after is not None:
            more["Retry-After"] = str(max(1, round(self.retry_after)))
        if self.status is HTTPStatus.UNAUTHORIZED:
            more["WWW-Authenticate"] = "Bearer"
        if closes:
            more["Connection"] = "close"
        return json_response(self.status, body, more, has_body=has_body)

    def grpc_headers(self) -> dict[str, str]:
        return {
            "Grpc-Status": str(_GRPC_STATUSES.get(self.status, _GRPC_UNKNOWN)),
            "Grpc-Message": quote(self.message, safe=_GRPC_PLAIN),
        }

    def grpc_response(self, *, closes: bool) -> bytes:
        """Return the response to a gRPC request; gRPC clients read only status and message."""
        lines = [
            "HTTP/1.1 200 OK",
            "Content-Type: application/grpc",
            "Content-Length: 0",
            *(f"{name}: {value}" for name, value in self.grpc_headers().items()),
        ]
        if closes:
            lines.append("Connection: close")
        return "\r\n".join(lines).encode() + b"\r\n\r\n"


def response(body: bytes, content_type: str) -> bytes:
    """Return a successful response of the gateway itself."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + SAFETY + b"\r\n" + body


def json_response(
    status: HTTPStatus, document: Any, more: Mapping[str, str], *, has_body: bool = True
) -> bytes:
    body = json.dumps(document, ensure_ascii=False).encode()
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", "Content-Type: application/json"]
    lines += [f"Content-Length: {len(body)}", *(f"{name}: {more[name]}" for name in more)]
    head = "\r\n".join(lines).encode() + b"\r\n" + SAFETY + b"\r\n"
    return head + body if has_body else head


def is_grpc(content_type: bytes) -> bool:
    media_type = content_type.lower().partition(b";")[0].strip()
    return media_type == b"application/grpc" or media_type.startswith(b"application/grpc+")
