"""Connections of the manager to other hosts: only to addresses that ``AllowedTargets`` allows."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from urllib.parse import urljoin, urlsplit

from bai_services.core.coded_text import CodedText, TextTemplate
from bai_services.core.ip_addresses import parse_address
from bai_services.core.sessions.callbacks import AllowedTargets

from .imports.transfer import SourceError, shut_down
from .sessions.callback_calls import Lookup

# Timeout of connecting, and of receiving the next bytes.
TIMEOUT_SECONDS = 60.0
# Maximum number of addresses to try, so that one name cannot delay other connections.
MAX_ADDRESSES = 4


class RetryableError(SourceError):
    """A failure after which another attempt may succeed."""

    is_temporary = True


def allowed_addresses(url: str, targets: AllowedTargets, lookup: Lookup, purpose: str) -> list[str]:
    """Return the addresses of the URL's host to which the manager may connect.

    ``purpose``: what the connection is for, as a plural noun in error messages.

    Raises
    ------
    SourceError
        If the host or its addresses are not allowed.
    """
    _, host, port = origin_of(url)
    if targets.is_off or not targets.allows_name(host):
        raise SourceError(f"{purpose} from {host} are not allowed")
    if parse_address(host) is not None:
        addresses = [host]
    else:
        try:
            addresses = lookup(host, port)
        except OSError:
            raise RetryableError(TextTemplate.SOURCE_UNKNOWN_HOST.text(name=host)) from None
        except UnicodeError:  # a part of the name is empty or too long
            raise SourceError(f"the host name {host[:100]} is not valid") from None
    allowed = [address for address in addresses if targets.allows_address(address)]
    if not allowed:
        raise SourceError(TextTemplate.SOURCE_NOT_PUBLIC.text(name=host))
    return allowed[:MAX_ADDRESSES]


def origin_of(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of a URL.

    Raises
    ------
    SourceError
        If the URL is not a valid URL of HTTP or HTTPS.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise SourceError("the server redirects to an invalid URL") from None
    if parts.scheme not in ("http", "https") or not host or port == 0 or "@" in parts.netloc:
        raise SourceError("the server redirects to an invalid URL")
    return parts.scheme, host, port or (443 if parts.scheme == "https" else 80)


def redirect_target(url: str, location: str | None) -> str:
    try:
        target = urljoin(url, location or "")
    except ValueError:
        raise SourceError("the server redirects to an invalid URL") from None
    if origin_of(url)[0] == "https" and origin_of(target)[0] != "https":
        raise SourceError("the server redirects from https to http")
    if not location or not target.isascii() or not target.isprintable() or " " in target:
        raise SourceError("the server redirects to an invalid URL")
    return target


@contextlib.contextmanager
def time_limit(connected: socket.socket, seconds: float) -> Iterator[None]:
    """Shut a connection down after a time, even if it is still receiving bytes."""
    timer = threading.Timer(seconds, shut_down, (connected,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def connect(addresses: list[str], port: int, seconds: float = TIMEOUT_SECONDS) -> socket.socket:
    """Connect to the first address that accepts; raise ``OSError`` if none does."""
    failure: OSError = OSError("no address")
    for address in addresses:
        try:
            return socket.create_connection((address, port), seconds)
        except OSError as error:
            failure = error
    raise failure


def problem_of(error: Exception) -> CodedText:
    if isinstance(error, TimeoutError):
        return TextTemplate.SOURCE_TIMEOUT.text()
    if isinstance(error, ssl.SSLError):
        return TextTemplate.SOURCE_TLS.text()
    return TextTemplate.SOURCE_UNREACHABLE.text(name=type(error).__name__)
