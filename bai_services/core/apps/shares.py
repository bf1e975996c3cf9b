"""Sharing of a session's apps: audiences, policy limits, and signed tokens of visitors."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from ..client_networks import check_networks
from ..errors import Forbidden, InvalidRequest

MAX_ADDRESSES = 64
DEFAULT_LIFE = timedelta(days=7)
# Lifetimes of the one-time token in a link, and of the token in a visitor's cookie.
ENTRY_LIFETIME = timedelta(minutes=1)
VISIT_LIFETIME = timedelta(hours=12)

# Apps that give access to the whole session: its files, its shell, its owner's tokens.
WHOLE_SESSION = frozenset(
    {
        "jupyterlab",
        "notebook",
        "terminal",
        "filebrowser",
        "ssh",
        "vscode",
        "vscode-desktop",
        "rstudio",
    }
)
_APP = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")


class Audience(StrEnum):
    """The audience of a shared app; ``PUBLIC`` includes anonymous visitors."""

    USER = "user"
    PROJECT = "project"
    PUBLIC = "public"


class Sharing(StrEnum):
    """Widest audience that a user policy allows; each value includes those listed before it."""

    NONE = "none"
    USER = "user"
    PROJECT = "project"
    PUBLIC = "public"


class VisitorTokenKind(StrEnum):
    ENTRY = "entry"  # in a URL, valid once
    VISIT = "visit"  # in a cookie


@dataclass(frozen=True, slots=True)
class VisitorToken:
    """A visitor and the share that admits them; ``user_id`` is empty for an anonymous visitor."""

    kind: VisitorTokenKind
    share_id: str
    user_id: str
    expires_at: datetime
    nonce: str
    # The visitor's Hub token, encrypted by the manager; empty for an anonymous visitor. Must not
    # contain a dot, which separates the fields of an encoded token.
    sign_in: str = ""


def check_app(name: str) -> str:
    """Return the name of an app if the app can be shared.

    Raises
    ------
    InvalidRequest
        If the name is not valid, or the app gives access to the whole session.
    """
    if not _APP.fullmatch(name):
        raise InvalidRequest(
            f"{name[:64]!r} is not the name of an app, such as tensorboard or port-8501",
            field="app",
        )
    if name in WHOLE_SESSION:
        raise InvalidRequest(
            f"{name} cannot be shared: it gives access to the whole session and its files",
            field="app",
        )
    return name


def check_sharing(allowed: str, audience: Audience) -> None:
    """Check an audience against ``allowed``, the widest audience of the user policy.

    Raises
    ------
    Forbidden
        If the audience is wider than ``allowed``.
    """
    order = list(Sharing)
    if order.index(Sharing(audience.value)) > order.index(Sharing(allowed)):
        raise Forbidden(
            f"your user policy lets you share apps with: {allowed}; {audience} was requested. "
            "An administrator can change the policy (app_sharing)",
            asked=audience,
            limit=allowed,
        )


def check_addresses(audience: Audience, texts: Sequence[str]) -> list[str] | None:
    """Return the networks that visitors may connect from; None: all networks.

    Networks of IPv4-mapped addresses are returned as IPv4.

    Raises
    ------
    InvalidRequest
        If there are more than ``MAX_ADDRESSES`` texts, a text is not a network, or a public share
        has no network.
    """
    if len(texts) > MAX_ADDRESSES:
        raise InvalidRequest(
            f"{len(texts)} addresses were requested; at most {MAX_ADDRESSES} are allowed",
            field="allowed_addresses",
        )
    networks = check_networks(texts, "allowed_addresses")
    if audience is Audience.PUBLIC and not networks:
        raise InvalidRequest(
            "a public share requires the networks from which visitors may connect; "
            "0.0.0.0/0 and ::/0 together allow every address",
            field="allowed_addresses",
        )
    return networks or None


def share_end(now: datetime, seconds: int | None, max_seconds: int) -> datetime:
    """Return the time at which a share ends: ``seconds`` after ``now``.

    ``max_seconds`` is the limit of the user policy; 0 means no limit. If ``seconds`` is None, the
    share ends after a week, or after ``max_seconds`` if that is shorter.

    Raises
    ------
    InvalidRequest
        If ``seconds`` exceeds the limit of the policy.
    """
    if seconds is None:
        default = int(DEFAULT_LIFE.total_seconds())
        seconds = min(default, max_seconds) if max_seconds else default
    if max_seconds and seconds > max_seconds:
        raise InvalidRequest(
            f"a share with a lifetime of {seconds} s was requested; your policy allows "
            f"{max_seconds} s at most",
            field="expires_in",
            asked=seconds,
            limit=max_seconds,
        )
    return now + timedelta(seconds=seconds)


def encode_token(key: bytes, visitor: VisitorToken) -> str:
    """Return a token as a string with a message authentication code (see ``decode_token``)."""
    expires = str(int(visitor.expires_at.timestamp()))
    body = ".".join(
        [visitor.kind, visitor.share_id, visitor.user_id, expires, visitor.nonce, visitor.sign_in]
    )
    return f"{body}.{_mac(key, body)}"


def decode_token(
    key: bytes, text: str, kind: VisitorTokenKind, now: datetime
) -> VisitorToken | None:
    """Verify and parse a token.

    Return None if the token is forged, expired, of another kind, or of an earlier version.
    """
    body, _, mac = text.rpartition(".")
    if not hmac.compare_digest(_mac(key, body).encode(), mac.encode(errors="backslashreplace")):
        return None
    parts = body.split(".")
    if len(parts) != 6:
        return None  # a token of an earlier version
    text_kind, share_id, user_id, expires, nonce, sign_in = parts
    expires_at = datetime.fromtimestamp(int(expires), now.tzinfo)
    if text_kind != kind or expires_at <= now:
        return None
    return VisitorToken(kind, share_id, user_id, expires_at, nonce, sign_in)


def _mac(key: bytes, body: str) -> str:
    # The manager also encrypts with ``key``, so derive a separate key for visitor tokens.
    derived = hashlib.sha256(b"app shares:" + key).digest()
    digest = hmac.digest(derived, body.encode(errors="backslashreplace"), "sha256")
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
