"""`/notifications`: the caller's notifications, and the settings of their delivery."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Literal

from pydantic import Field

from bai_services.core.listing import ListQuery, Page
from bai_services.core.notifications import records
from bai_services.core.notifications.catalogue import EventName

from ..base import APIHandler, operation
from ..fields import Body, CodedText, NameText, ResponseModel

_TAG = "notifications"
MAX_CHANNELS = 10
ChannelNames = Annotated[list[NameText], Field(max_length=MAX_CHANNELS)]


class Notification(ResponseModel):
    """``link`` is a path below the web UI, or empty."""

    id: str
    created_at: datetime
    event: str
    is_urgent: bool
    text: str
    coded: CodedText
    link: str
    is_read: bool


class NotificationEvent(ResponseModel):
    """``is_urgent``: quiet hours and digests do not delay it. ``channels``: the caller's choice."""

    name: EventName
    is_urgent: bool
    is_for_administrators: bool
    default_channels: list[str]
    channels: list[str]


class NotificationSettingsView(ResponseModel):
    """``channels``: the events for which the caller has chosen channels.

    ``mail_address`` is empty if no mail server is configured.
    """

    language: str
    time_zone: str
    quiet_starts: str
    quiet_ends: str
    digest: str
    digest_time: str
    channels: dict[str, list[str]]
    mail_address: str


class NotificationSettingsChange(Body):
    """``time_zone``: IANA name. Times are ``HH:MM``; empty ``quiet_starts`` and ``quiet_ends``: no
    quiet hours. ``channels`` maps an event to some of web, mail, webhook and slack; events that are
    left out keep their channels.
    """

    language: NameText | None = None
    time_zone: NameText | None = None
    quiet_starts: NameText | None = None
    quiet_ends: NameText | None = None
    digest: Literal["none", "hourly", "daily"] | None = None
    digest_time: NameText | None = None
    channels: Annotated[dict[NameText, ChannelNames], Field(max_length=100)] | None = None


class NotificationsHandler(APIHandler):
    @operation("List your notifications", tag=_TAG, returns=Notification, is_list=True)
    async def get(self, query: ListQuery) -> Page[records.Notification]:
        return await self.manager.notifications.inbox.page(self.caller, query)


class NotificationReadHandler(APIHandler):
    @operation(
        "Mark a notification as read",
        tag=_TAG,
        status=HTTPStatus.NO_CONTENT,
        works_when_read_only=True,
    )
    async def put(self, key: str) -> None:
        await self.manager.notifications.inbox.mark_read(self.caller, key)


class AllNotificationsReadHandler(APIHandler):
    @operation(
        "Mark all your notifications as read",
        tag=_TAG,
        status=HTTPStatus.NO_CONTENT,
        works_when_read_only=True,
    )
    async def put(self) -> None:
        await self.manager.notifications.inbox.mark_all_read(self.caller)


class NotificationEventsHandler(APIHandler):
    @operation(
        "List the events about which you can be notified",
        tag=_TAG,
        returns=NotificationEvent,
        is_list=True,
    )
    async def get(self, query: ListQuery) -> Page[records.NotificationEvent]:
        return await self.manager.notifications.inbox.events(self.caller, query)


class NotificationSettingsHandler(APIHandler):
    @operation("Read your notification settings", tag=_TAG, returns=NotificationSettingsView)
    async def get(self) -> records.NotificationSettingsView:
        return await self.manager.notifications.inbox.settings(self.caller)

    @operation(
        "Change your notification settings",
        tag=_TAG,
        body=NotificationSettingsChange,
        returns=NotificationSettingsView,
    )
    async def patch(self, body: NotificationSettingsChange) -> records.NotificationSettingsView:
        changes = body.given_fields()
        return await self.manager.notifications.inbox.update_settings(self.caller, changes)


ROUTES = [
    ("/notifications", NotificationsHandler),
    ("/notifications/read", AllNotificationsReadHandler),
    (r"/notifications/(?P<key>[^/]+)/read", NotificationReadHandler),
    ("/notification-events", NotificationEventsHandler),
    ("/notification-settings", NotificationSettingsHandler),
]
