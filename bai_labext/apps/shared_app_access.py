"""Access of visitors to shared apps; the manager admits visitors, and its decision is cached for 2
s.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bai_services.core.errors import Forbidden, Unavailable

# An admission is cached for this time, even if the share is then revoked or the visitor signs out.
CACHE_TTL_SECONDS = 2.0
# While the manager is unavailable, a visitor keeps access for this time after the last admission.
GRACE_SECONDS = 60.0
MAX_CACHED_VISITS = 1000

RequestAccess = Callable[[Mapping[str, str]], Awaitable[Mapping[str, Any]]]
"""Function that sends the credentials of a visitor to the manager (``ManagerLink.visit``)."""


@dataclass(frozen=True, slots=True)
class Visit:
    """The credentials of a visitor: the app, the client's address and the token of the cookie."""

    app: str
    client_ip: str
    token: str


class Visits:
    """The visits to shared apps of one session, with cached admissions by the manager."""

    def __init__(
        self, request_access: RequestAccess, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._request_access = request_access
        self._clock = clock
        self._admitted_at: dict[Visit, float] = {}

    async def enter(self, app: str, client_ip: str, entry: str) -> Visit:
        """Return a new visit for a single-use entry token, which is part of the manager's link.

        Raises
        ------
        Forbidden
            If the manager denies the visit, for example because the token was used or has expired.
        Unavailable
            If the manager cannot be reached.
        """
        credentials = {"app": app, "client_ip": client_ip, "entry": entry}
        response = await self._request_access(credentials)
        visit = Visit(app, client_ip, str(response["visit"]))
        self._cache(visit)
        return visit

    async def check(self, visit: Visit) -> None:
        """Check that a visit may continue.

        Raises
        ------
        Forbidden
            If the manager denies the visit, or the visitor has no token.
        Unavailable
            If the manager is unavailable, and no admission within the grace period is cached.
        """
        if not visit.token:
            raise Forbidden("open this app with the link that you received")
        age = self._clock() - self._admitted_at.get(visit, float("-inf"))
        if age < CACHE_TTL_SECONDS:
            return
        credentials = {"app": visit.app, "client_ip": visit.client_ip, "visit": visit.token}
        try:
            await self._request_access(credentials)
        except Unavailable:
            if age >= GRACE_SECONDS:
                raise
        except Forbidden:
            self._admitted_at.pop(visit, None)
            raise
        else:
            self._cache(visit)

    def _cache(self, visit: Visit) -> None:
        now = self._clock()
        if len(self._admitted_at) >= MAX_CACHED_VISITS:
            recent = {v: at for v, at in self._admitted_at.items() if now - at < GRACE_SECONDS}
            self._admitted_at = recent if len(recent) < MAX_CACHED_VISITS else {}
        self._admitted_at[visit] = now
