"""Shares of a session's app: audience, limits of the policy, and sealed passes of visitors."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from ..errors import Forbidden, InvalidRequest

MAX_ADDRESSES = 64
DEFAULT_LIFE = timedelta(days=7)
# Lifetime of the entry pass in a link, and of a visit before another entry is needed.
ENTRY_LIFE = timedelta(minutes=1)
PASS_LIFE = timedelta(hours=12)

# Access to one of these means access to the whole session: its files, its shell, its owner's
# tokens.
WHOLE_SESSION = frozenset(
    {"jupyterlab", "notebook", "terminal", "filebrowser", "ssh", "vscode", "rstudio"}
)
_APP = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")


class Audience(StrEnum):
    """Whom an app is shared with."""

    USER = "user"
    PROJECT = "project"
    PUBLIC = "public"


class Sharing(StrEnum):
    """Widest audience that a user policy allows; each includes those before it."""

    NONE = "none"
    USER = "user"
    PROJECT = "project"
    PUBLIC = "public"


class PassKind(StrEnum):
    ENTRY = "entry"  # in an address, valid once
    VISIT = "visit"  # in a cookie


@dataclass(frozen=True, slots=True)
class Pass:
    """A visitor and the share that admits them; ``user_id`` is empty for an anonymous visitor."""

    kind: PassKind
    share_id: str
    user_id: str
    expires_at: datetime
    nonce: str


def check_app(name: str) -> str:
    """Return the name of an app if it may be shared by itself.

    Raises
    ------
    InvalidRequest
        If it is not the name of an app, or would give away the whole session.
    """
    if not _APP.fullmatch(name):
        raise InvalidRequest(
            f"{name[:64]!r} is not the name of an app; write for instance tensorboard or port-8501",
            field="app",
        )
    if name in WHOLE_SESSION:
        raise InvalidRequest(
            f"{name} cannot be shared: it would give the whole session with its files away",
            field="app",
        )
    return name


def check_sharing(allowed: str, audience: Audience) -> None:
    """Check that a policy that allows ``allowed`` permits sharing with such an audience.

    Raises
    ------
    Forbidden
        If it does not.
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
    """Return the networks that visitors may come from, None for everywhere.

    Raises
    ------
    InvalidRequest
        If there are more than 64 or one is not a network.
    """
    if len(texts) > MAX_ADDRESSES:
        raise InvalidRequest(
            f"{len(texts)} addresses; at most {MAX_ADDRESSES} are allowed",
            field="allowed_addresses",
        )
    found = []
    for text in texts:
        try:
            found.append(str(ipaddress.ip_network(text.strip())))
        except ValueError:
            raise InvalidRequest(
                f"{text[:64]!r} is not an address or network; write 192.0.2.7 or 192.0.2.0/24",
                field="allowed_addresses",
            ) from None
    if audience is Audience.PUBLIC and not found:
        raise InvalidRequest(
            "a public share needs the addresses that visitors may come from; "
            "0.0.0.0/0 and ::/0 together are everywhere",
            field="allowed_addresses",
        )
    return found or None


def end_of(now: datetime, seconds: int | None, most: int) -> datetime:
    """Return when a share ends: after ``seconds``, by default a week; 0 means no limit.

    Raises
    ------
    InvalidRequest
        If the policy does not allow such a long share.
    """
    if seconds is None:
        asked = int(DEFAULT_LIFE.total_seconds())
        seconds = min(asked, most) if most else asked
    if most and seconds > most:
        raise InvalidRequest(
            f"a share of {seconds} s was requested; your policy allows {most} s",
            field="expires_in",
            asked=seconds,
            limit=most,
        )
    return now + timedelta(seconds=seconds)


def seal(key: bytes, found: Pass) -> str:
    """Return a pass as an authenticated text; only a holder of ``key`` can create one."""
    until = str(int(found.expires_at.timestamp()))
    body = ".".join([found.kind, found.share_id, found.user_id, until, found.nonce])
    return f"{body}.{_mac(key, body)}"


def unseal(key: bytes, text: str, kind: PassKind, now: datetime) -> Pass | None:
    """Return the pass in a text; None if the text is forged, of another kind, or expired."""
    body, _, mac = text.rpartition(".")
    if not hmac.compare_digest(_mac(key, body).encode(), mac.encode(errors="backslashreplace")):
        return None
    found, share_id, user_id, until, nonce = body.split(".")
    expires_at = datetime.fromtimestamp(int(until), now.tzinfo)
    if found != kind or expires_at <= now:
        return None
    return Pass(kind, share_id, user_id, expires_at, nonce)


def _mac(key: bytes, body: str) -> str:
    # A derived key: the manager's key itself encrypts other things.
    own = hashlib.sha256(b"app shares:" + key).digest()
    digest = hmac.digest(own, body.encode(errors="backslashreplace"), "sha256")
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
