"""Broadcast of session changes: to loops of the manager, and to event streams."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from bai_services.core.accounts.roles import Caller, Visibility
from bai_services.core.sessions.lifecycle import Status
from bai_services.db.accounts.users import UserStore
from bai_services.db.database import Database

from .accounts import authorizer

# A listener that is this far behind loses the oldest changes; clients read the session itself.
QUEUE_LENGTH = 256
# The set of owners whose sessions a listener may not read is cached for this time.
HIDDEN_TTL_SECONDS = 5.0
# Kind of a change of a pending session's reasons, position or estimated start.
POSITION = "position"
REASONS = "reasons"


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a session; the last three fields decide who may read it."""

    session_id: str
    status: Status
    kind: str  # status, reasons, position, progress, name
    owner_id: str
    project_id: str
    domain: str

    @property
    def people(self) -> tuple[str, str, str]:
        return self.owner_id, self.project_id, self.domain


class Subscription:
    """Changes since it was opened, in order; changed positions follow, each session once."""

    def __init__(
        self, session_id: str | None = None, may_hear: Callable[[Change], bool] | None = None
    ) -> None:
        """Subscribe to one session or to all, of owners that ``may_hear`` accepts; without it,
        of all.
        """
        self.session_id = session_id
        self._may_hear = may_hear
        self._heard: dict[tuple[str, str, str], bool] = {}
        self._steps: deque[Change] = deque(maxlen=QUEUE_LENGTH)
        self._moved: dict[str, Change] = {}
        self._has_news = asyncio.Event()

    def put(self, change: Change) -> None:
        if self.session_id in (None, change.session_id) and self.matches(change):
            self._steps.append(change)
            self._has_news.set()

    def put_moved(self, changes: Mapping[str, Change]) -> None:
        """Add changed positions, by session; they all concern the same owner, already checked."""
        self._moved.update(changes)
        self._has_news.set()

    def matches(self, change: Change) -> bool:
        """Return whether the listener may read the sessions of this owner."""
        if self._may_hear is None:
            return True
        if (known := self._heard.get(change.people)) is None:
            known = self._heard[change.people] = self._may_hear(change)
        return known

    async def get(self, timeout_seconds: float) -> Change | None:
        """Return the next change, or None after the timeout."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._has_news.wait()
        except TimeoutError:
            return None
        change = self._steps.popleft() if self._steps else self._moved.pop(next(iter(self._moved)))
        if not self._steps and not self._moved:
            self._has_news.clear()
        return change


class Events:
    """Broadcast of changes; nothing is stored for later listeners."""

    def __init__(self) -> None:
        self._subscriptions: set[Subscription] = set()
        self._followers: set[Subscription] = set()

    @property
    def is_followed(self) -> bool:
        """Return whether any listener receives queue positions."""
        return bool(self._followers)

    def publish(self, change: Change) -> None:
        for subscription in self._subscriptions:
            subscription.put(change)

    def publish_moved(self, moved: Mapping[str, Change]) -> None:
        """Publish the changed positions of many sessions at once.

        The cost per listener grows with the number of owners, not of sessions.
        """
        of_people: dict[tuple[str, str, str], dict[str, Change]] = defaultdict(dict)
        for session_id, change in moved.items():
            of_people[change.people][session_id] = change
        for subscription in self._followers:
            if subscription.session_id is not None:
                followed = moved.get(subscription.session_id)
                parts = [] if followed is None else [{followed.session_id: followed}]
            else:
                parts = list(of_people.values())
            for part in parts:
                if subscription.matches(next(iter(part.values()))):
                    subscription.put_moved(part)

    @contextmanager
    def subscribe(self) -> Iterator[Subscription]:
        """Subscribe to every status change of every session."""
        with self._kept(Subscription()) as subscription:
            yield subscription

    @contextmanager
    def follow(
        self, session_id: str | None, may_hear: Callable[[Change], bool]
    ) -> Iterator[Subscription]:
        """Subscribe to all changes, positions included, of one session or of all readable ones."""
        with self._kept(Subscription(session_id, may_hear)) as subscription:
            self._followers.add(subscription)
            try:
                yield subscription
            finally:
                self._followers.discard(subscription)

    @contextmanager
    def _kept(self, subscription: Subscription) -> Iterator[Subscription]:
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)


class Feed:
    """The changes that one caller may read."""

    def __init__(self, events: Events, database: Database) -> None:
        self._events = events
        self._users = UserStore(database)

    def follow(
        self, caller: Caller, session_id: str | None, keepalive_seconds: float
    ) -> AsyncGenerator[Change | None, None]:
        """Yield changes without end, of one session or of all; None after a time without changes.

        Raises
        ------
        Forbidden
            If the caller may read no sessions at all.
        """
        # Here and not in the generator: a refusal must come before the answer has begun.
        visible = authorizer.visibility(caller, "session.read")
        return self._changes(visible, session_id, keepalive_seconds)

    async def _changes(
        self, visible: Visibility, session_id: str | None, keepalive_seconds: float
    ) -> AsyncGenerator[Change | None, None]:
        loop = asyncio.get_running_loop()
        hidden: frozenset[str] = frozenset()
        read_at = -math.inf
        sent_at = loop.time()
        with self._events.follow(session_id, partial(_covers, visible)) as changes:
            while True:
                change = await changes.get(keepalive_seconds)
                if visible.hidden_roles and loop.time() - read_at > HIDDEN_TTL_SECONDS:
                    hidden = await self._users.ids_with_roles(visible.hidden_roles)
                    read_at = loop.time()
                if change is not None and change.owner_id in hidden:
                    # The caller's permission is checked again now and then, see ``api/events.py``.
                    if loop.time() - sent_at < keepalive_seconds:
                        continue
                    change = None
                sent_at = loop.time()
                yield change


def _covers(visible: Visibility, change: Change) -> bool:
    return visible.covers(change.domain, change.project_id, change.owner_id)
