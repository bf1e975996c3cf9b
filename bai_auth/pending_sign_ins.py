"""Sign-ins that require a further step, such as a one-time code, after the password.

The credentials are kept in memory for some minutes, so that neither the page nor the browser has to
store the password. Only the browser that sent the password can continue a sign-in: the key in the
page is valid only with a secret in a cookie of that browser. The continued sign-in is checked again
like any other.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

LIFETIME_SECONDS = 120.0
MAX_PENDING = 1000
# Sign-ins of one account must not evict those of other accounts.
MAX_PENDING_PER_ACCOUNT = 5


@dataclass(frozen=True, slots=True)
class Credentials:
    """What the user has typed, and the state of the sign-in.

    ``code_proof`` is set after a correct one-time code. ``is_confirmed``: the user has confirmed
    that the sign-in may sign out the account's oldest browser. ``new_password``: the new password
    of a password change that requires a code. ``registration``: the manager's response at the start
    of the registration of an authenticator app, with the ``username`` added. ``external``: the
    verified identity at an OpenID provider, instead of a password.
    """

    username: str
    password: str = field(repr=False)
    code_proof: str = field(default="", repr=False)
    is_confirmed: bool = False
    new_password: str = field(default="", repr=False)
    registration: Mapping[str, Any] | None = field(default=None, repr=False)
    external: Mapping[str, Any] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class PendingKeys:
    """The secrets that continue a sign-in: ``key`` in the page, ``browser`` in a cookie."""

    key: str = field(repr=False)
    browser: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Pending:
    ends_at: float
    account: str
    browser: bytes = field(repr=False)
    credentials: Credentials


class PendingSignIns:
    """Stores credentials of pending sign-ins; each can be taken once."""

    def __init__(
        self,
        call_later: Callable[[float, Callable[[], None]], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``call_later`` calls a function after a number of seconds."""
        self._call_later = call_later
        self._clock = clock
        self._pending: dict[str, _Pending] = {}

    def add(
        self, account: str, credentials: Credentials, seconds: float = LIFETIME_SECONDS
    ) -> PendingKeys:
        """Return the secrets that ``take`` requires.

        ``account`` is the account's user name; the user may have typed another name. The
        credentials are removed after ``seconds``. At the limit of the account, evict its oldest
        sign-in; at the total limit, evict the oldest sign-in.
        """
        self._remove_expired()
        own = [key for key, entry in self._pending.items() if entry.account == account]
        if len(own) >= MAX_PENDING_PER_ACCOUNT:
            del self._pending[own[0]]
        elif len(self._pending) >= MAX_PENDING:
            del self._pending[next(iter(self._pending))]
        keys = PendingKeys(secrets.token_urlsafe(32), secrets.token_urlsafe(32))
        ends_at = self._clock() + seconds
        self._pending[keys.key] = _Pending(ends_at, account, keys.browser.encode(), credentials)
        self._call_later(seconds, self._remove_expired)
        return keys

    def take(self, key: str, browser: str) -> Credentials | None:
        """Return and remove the credentials.

        Return None if the key is unknown, used or expired. For another browser, also return None,
        but keep the credentials.
        """
        pending = self._pending.get(key)
        if pending is None or not hmac.compare_digest(
            pending.browser, browser.encode(errors="replace")
        ):
            return None
        del self._pending[key]
        return pending.credentials if pending.ends_at > self._clock() else None

    def _remove_expired(self) -> None:
        now = self._clock()
        self._pending = {key: entry for key, entry in self._pending.items() if entry.ends_at > now}
