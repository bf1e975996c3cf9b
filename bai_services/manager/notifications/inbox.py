"""The notifications of the caller, and the settings of their delivery."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bai_services.core.accounts.roles import Caller, Role
from bai_services.core.errors import InvalidRequest
from bai_services.core.listing import ListQuery, Page, page_of
from bai_services.core.notifications.catalogue import EVENTS, EventType
from bai_services.core.notifications.records import (
    Notification,
    NotificationEvent,
    NotificationSettingsView,
)
from bai_services.core.notifications.settings import NotificationSettings, check_settings
from bai_services.core.record_fields import fields_of
from bai_services.db.accounts.users import UserStore
from bai_services.db.notifications.inbox import InboxStore
from bai_services.i18n.catalogue import LANGUAGES

from ..accounts import authorizer
from ..context import ManagerContext
from ..mail.mails import Mails

_EVENT_FIELDS = ("name", "is_urgent", "is_for_administrators")


class Inbox:
    """Reads the caller's notifications, and reads and changes the caller's settings."""

    def __init__(self, context: ManagerContext, mails: Mails) -> None:
        self._store = InboxStore(context.database)
        self._users = UserStore(context.database)
        self._audit = context.audit
        self._mails = mails

    async def page(self, caller: Caller, query: ListQuery) -> Page[Notification]:
        return await self._store.page(_user_id(caller, "notification.read"), query)

    async def mark_read(self, caller: Caller, key: str) -> None:
        await self._store.mark_read(_user_id(caller, "notification.change"), key)

    async def mark_all_read(self, caller: Caller) -> None:
        await self._store.mark_all_read(_user_id(caller, "notification.change"))

    async def events(self, caller: Caller, query: ListQuery) -> Page[NotificationEvent]:
        """Return the events that the caller can receive, with the caller's channels."""
        settings = await self._store.settings(_user_id(caller, "notification.read"))
        items = [
            NotificationEvent(
                name=event.name,
                is_urgent=event.is_urgent,
                is_for_administrators=event.is_for_administrators,
                default_channels=sorted(event.defaults),
                channels=sorted(settings.channels_of(event)),
            )
            for event in EVENTS.values()
            if _may_receive(caller, event)
        ]
        return page_of(items, query, _EVENT_FIELDS)

    async def settings(self, caller: Caller) -> NotificationSettingsView:
        user_id = _user_id(caller, "notification.read")
        return await self._view(user_id, await self._store.settings(user_id))

    async def update_settings(
        self, caller: Caller, changes: Mapping[str, Any]
    ) -> NotificationSettingsView:
        """Change settings; ``channels`` contains only the events to change.

        Raises
        ------
        InvalidRequest
            If a value is not valid.
        """
        user_id = _user_id(caller, "notification.change")
        before = await self._store.settings(user_id)
        values = {name: value for name, value in changes.items() if value is not None}
        if "channels" in values:
            values["channels"] = {**before.channels, **values["channels"]}
        if values.get("language", before.language) not in LANGUAGES:
            raise InvalidRequest(
                f"language must be one of {', '.join(LANGUAGES)}", field="language"
            )
        settings = replace(before, **values)
        check_settings(settings)
        details = self._audit.changes(fields_of(before), values)
        entry = self._audit.entry(
            caller,
            "notification.update-settings",
            user_id,
            domain=caller.domain,
            owner_id=user_id,
            name=caller.username,
            **details,
        )
        await self._store.put_settings(user_id, settings, entry)
        return await self._view(user_id, settings)

    async def _view(self, user_id: str, settings: NotificationSettings) -> NotificationSettingsView:
        user = await self._users.find(user_id)
        address = user.email if user is not None and self._mails.is_configured else ""
        return NotificationSettingsView(**fields_of(settings), mail_address=address)


def _user_id(caller: Caller, action: str) -> str:
    authorizer.require(caller, action)
    return caller.user_id or ""


def _may_receive(caller: Caller, event: EventType) -> bool:
    """Return whether an event can concern a user with the role of the caller."""
    if event.is_for_administrators:
        return caller.role is Role.SUPERADMIN
    return not event.is_for_domain_admins or caller.role in (Role.ADMIN, Role.SUPERADMIN)
