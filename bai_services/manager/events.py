"""Broadcast changes of sessions and folders to loops of the manager and to event streams."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from bai_services.core.accounts.roles import Caller, Visibility
from bai_services.core.sessions.lifecycle import Status
from bai_services.db.accounts.users import UserStore
from bai_services.db.database import Database

from .accounts import authorizer

# Maximum number of queued changes per listener. A full queue drops the oldest change. Clients
# tolerate this, because they fetch the session when they receive a change.
QUEUE_LENGTH = 256
# Cache lifetime of the set of owners whose sessions a listener may not read.
HIDDEN_TTL_SECONDS = 5.0
# Kinds of change of a pending session.
POSITION = "position"
REASONS = "reasons"
# Kinds of changes that belong to no session.
# A user was invited to a folder, or an invitation to the user was accepted, declined or withdrawn.
INVITATION = "invitation"
# A folder that the user uses was created, shared, changed, withdrawn or deleted, or an invitation
# that the user sent was accepted, declined or withdrawn.
FOLDER = "folder"
# The account of the user was changed by an administrator.
ACCOUNT = "account"
# Files of a folder that the user uses have changed.
FILES = "files"
# The user has a new notification.
NOTIFICATION = "notification"


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a session or folder; owner, project and domain determine who may read it."""

    session_id: str
    status: Status | None
    # status, reasons, position, progress, name, invitation, folder, files, notification, account
    kind: str
    owner_id: str
    project_id: str
    domain: str
    folder_id: str = ""

    @property
    def scope(self) -> tuple[str, str, str]:
        return self.owner_id, self.project_id, self.domain


class Subscription:
    """Queue of one listener: changes in order, then the latest changed position per session."""

    def __init__(
        self,
        session_id: str | None = None,
        may_read: Callable[[Change], bool] | None = None,
        user_id: str | None = None,
    ) -> None:
        """Subscribe to one session or, without ``session_id``, to all.

        ``may_read`` decides which changes are included; default: all. ``user_id`` is the listener.
        """
        self.session_id = session_id
        self._user_id = user_id
        self._may_read = may_read
        self._readable: dict[tuple[str, str, str], bool] = {}
        self._changes: deque[Change] = deque(maxlen=QUEUE_LENGTH)
        self._positions: dict[str, Change] = {}
        self._is_not_empty = asyncio.Event()

    def put(self, change: Change) -> None:
        if self.session_id in (None, change.session_id) and self.matches(change):
            self._append(change)

    def put_for(self, user_ids: Collection[str], change: Change) -> None:
        """Add a change that belongs to no session, if the listener is one of ``user_ids`` or may
        read the change.
        """
        if self.session_id is not None:
            return
        if self._user_id is not None and self._user_id in user_ids:
            # The listener may read this change regardless of the role of the folder's owner.
            self._append(replace(change, owner_id=self._user_id))
        elif self.matches(change):
            self._append(change)

    def put_own(self, user_ids: Collection[str], kind: str) -> None:
        """Add a change that concerns only the listener, if the listener is one of ``user_ids``."""
        user_id = self._user_id
        if self.session_id is None and user_id is not None and user_id in user_ids:
            self._append(Change("", None, kind, user_id, "", ""))

    def _append(self, change: Change) -> None:
        self._changes.append(change)
        self._is_not_empty.set()

    def put_positions(self, changes: Mapping[str, Change]) -> None:
        """Add changed positions of one owner's sessions; the caller has checked ``matches``."""
        self._positions.update(changes)
        self._is_not_empty.set()

    def matches(self, change: Change) -> bool:
        """Return whether the listener may read changes with this owner, project and domain."""
        if self._may_read is None:
            return True
        if (known := self._readable.get(change.scope)) is None:
            known = self._readable[change.scope] = self._may_read(change)
        return known

    async def get(self, timeout_seconds: float) -> Change | None:
        """Return the next change, or None after the timeout."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._is_not_empty.wait()
        except TimeoutError:
            return None
        change = (
            self._changes.popleft()
            if self._changes
            else self._positions.pop(next(iter(self._positions)))
        )
        if not self._changes and not self._positions:
            self._is_not_empty.clear()
        return change


class Events:
    """Broadcasts changes to current listeners; later listeners do not receive them."""

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

    def publish_positions(self, changes: Mapping[str, Change]) -> None:
        """Publish the changed positions of many sessions at once.

        For each listener, the permission is checked once per owner and project, not per session.
        """
        by_scope: dict[tuple[str, str, str], dict[str, Change]] = defaultdict(dict)
        for session_id, change in changes.items():
            by_scope[change.scope][session_id] = change
        for subscription in self._followers:
            if subscription.session_id is not None:
                followed = changes.get(subscription.session_id)
                groups = [] if followed is None else [{followed.session_id: followed}]
            else:
                groups = list(by_scope.values())
            for group in groups:
                if subscription.matches(next(iter(group.values()))):
                    subscription.put_positions(group)

    def publish_to_user(self, user_id: str, kind: str) -> None:
        """Notify the event streams of this user, and of all others who may read the change."""
        change = Change("", None, kind, user_id, "", "")
        for subscription in self._followers:
            subscription.put(change)

    def publish_to_users(self, user_ids: Collection[str], change: Change) -> None:
        """Notify the event streams of these users, and of all others who may read the change."""
        for subscription in self._followers:
            subscription.put_for(user_ids, change)

    def publish_only_to_users(self, user_ids: Collection[str], kind: str) -> None:
        """Notify only the event streams of these users."""
        for subscription in self._followers:
            subscription.put_own(user_ids, kind)

    @contextmanager
    def subscribe(self) -> Iterator[Subscription]:
        """Subscribe to all changes of all sessions, except queue positions."""
        with self._registered(Subscription()) as subscription:
            yield subscription

    @contextmanager
    def follow(
        self,
        session_id: str | None,
        may_read: Callable[[Change], bool],
        user_id: str | None = None,
    ) -> Iterator[Subscription]:
        """Subscribe to all changes, including queue positions, of one or all readable sessions."""
        with self._registered(Subscription(session_id, may_read, user_id)) as subscription:
            self._followers.add(subscription)
            try:
                yield subscription
            finally:
                self._followers.discard(subscription)

    @contextmanager
    def _registered(self, subscription: Subscription) -> Iterator[Subscription]:
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)


class Feed:
    """Event streams of clients, limited to the changes that the caller may read."""

    def __init__(self, events: Events, database: Database) -> None:
        self._events = events
        self._users = UserStore(database)

    def follow(
        self, caller: Caller, session_id: str | None, keepalive_seconds: float
    ) -> AsyncGenerator[Change | None, None]:
        """Yield changes endlessly: of one session, or of all if ``session_id`` is None.

        Yields None after ``keepalive_seconds`` without a change.

        Raises
        ------
        Forbidden
            If the caller may not read any session.
        """
        # Check outside of the generator, because the error must be raised before the response
        # begins.
        visible = authorizer.visibility(caller, "session.read")
        return self._changes(caller, visible, session_id, keepalive_seconds)

    async def _changes(
        self,
        caller: Caller,
        visible: Visibility,
        session_id: str | None,
        keepalive_seconds: float,
    ) -> AsyncGenerator[Change | None, None]:
        loop = asyncio.get_running_loop()
        hidden: frozenset[str] = frozenset()
        read_at = -math.inf
        sent_at = loop.time()
        may_read = partial(_covers, visible)
        with self._events.follow(session_id, may_read, caller.user_id) as changes:
            while True:
                change = await changes.get(keepalive_seconds)
                if visible.hidden_roles and loop.time() - read_at > HIDDEN_TTL_SECONDS:
                    hidden = await self._users.ids_with_roles(visible.hidden_roles)
                    read_at = loop.time()
                if change is not None and change.owner_id in hidden:
                    # Yield at least every ``keepalive_seconds``, even if the caller may not read
                    # any of the changes: a client considers the stream broken if it receives
                    # nothing for longer.
                    if loop.time() - sent_at < keepalive_seconds:
                        continue
                    change = None
                sent_at = loop.time()
                yield change


def _covers(visible: Visibility, change: Change) -> bool:
    return visible.covers(change.domain, change.project_id, change.owner_id)
