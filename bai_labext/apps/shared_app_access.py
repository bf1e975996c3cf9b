"""Access to shared apps: decided by the manager, whose answer is cached for some seconds."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bai_services.core.errors import Forbidden, Unavailable

# A revoked share, or the ended sign-in of a visitor, remains valid for this time.
ANSWER_SECONDS = 2.0
# While the manager is unavailable, visitors admitted within this time keep their access.
GRACE_SECONDS = 60.0
MAX_ANSWERS = 1000

Ask = Callable[[Mapping[str, str]], Awaitable[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Visit:
    """A visitor's access to an app from one address, by the pass in their browser."""

    app: str
    client_ip: str
    text: str


class Visits:
    """Visitors of one session."""

    def __init__(self, ask: Ask, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._admitted: dict[Visit, float] = {}

    async def enter(self, app: str, client_ip: str, entry: str) -> Visit:
        """Return the visit that starts with an entry created by the manager.

        Raises
        ------
        Forbidden
            If the entry is invalid, used or expired.
        Unavailable
            If the manager cannot be reached.
        """
        found = await self._ask({"app": app, "client_ip": client_ip, "entry": entry})
        visit = Visit(app, client_ip, str(found["visit"]))
        self._note(visit)
        return visit

    async def check(self, visit: Visit) -> None:
        """Return if a visit may continue.

        Raises
        ------
        Forbidden
            If it may not.
        Unavailable
            If the manager has been unreachable for longer than the grace period.
        """
        if not visit.text:
            raise Forbidden("open this app with the link of its share")
        age = self._clock() - self._admitted.get(visit, float("-inf"))
        if age < ANSWER_SECONDS:
            return
        shown = {"app": visit.app, "client_ip": visit.client_ip, "visit": visit.text}
        try:
            await self._ask(shown)
        except Unavailable:
            if age >= GRACE_SECONDS:
                raise
        except Forbidden:
            self._admitted.pop(visit, None)
            raise
        else:
            self._note(visit)

    def _note(self, visit: Visit) -> None:
        now = self._clock()
        if len(self._admitted) >= MAX_ANSWERS:
            recent = {v: at for v, at in self._admitted.items() if now - at < GRACE_SECONDS}
            self._admitted = recent if len(recent) < MAX_ANSWERS else {}
        self._admitted[visit] = now
