"""`/announcements`: texts that administrators show to users during a period."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Literal

from pydantic import StringConstraints
from pydantic.functional_validators import AfterValidator

from bai_services.core.listing import ListQuery, Page
from bai_services.core.operations import announcements as records
from bai_services.core.operations.announcements import MAX_TEXT_CHARS, MAX_TITLE_CHARS

from ..base import APIHandler, operation
from ..fields import Body, Count, Instant, NameText, ResponseModel, readable, readable_lines

_TAG = "announcements"

Title = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MAX_TITLE_CHARS, strip_whitespace=True),
    AfterValidator(readable),
]
MarkdownText = Annotated[
    str, StringConstraints(max_length=MAX_TEXT_CHARS), AfterValidator(readable_lines)
]
LevelName = Literal["info", "warning", "critical"]


class AnnouncementChange(Body):
    """``text`` is Markdown. ``ends_at`` null: no end. ``version``: the version that you have read;
    if there is a newer one, you get a conflict.
    """

    version: Count | None = None
    title: Title | None = None
    text: MarkdownText | None = None
    level: LevelName | None = None
    starts_at: Instant | None = None
    ends_at: Instant | None = None


class NewAnnouncement(Body):
    """``target``: the domain, project (id or name) or role, depending on ``audience``."""

    title: Title
    text: MarkdownText = ""
    level: LevelName = "info"
    audience: Literal["everyone", "domain", "project", "role"] = "everyone"
    target: NameText | None = None
    starts_at: Instant | None = None
    ends_at: Instant | None = None


class Announcement(ResponseModel):
    """``changed_by_role``: role of the user who created or last changed the announcement; domain
    administrators cannot change announcements of superadmins.
    """

    id: str
    created_at: datetime
    version: int
    title: str
    text: str
    level: str
    audience: str
    target: str | None
    target_name: str | None
    domain: str | None
    starts_at: datetime
    ends_at: datetime | None
    author: str
    changed_by_role: str


class CurrentAnnouncement(ResponseModel):
    """``is_dismissed``: the caller has closed the announcement."""

    id: str
    title: str
    text: str
    level: str
    starts_at: datetime
    ends_at: datetime | None
    is_dismissed: bool


class AnnouncementsHandler(APIHandler):
    @operation("List all announcements", tag=_TAG, returns=Announcement, is_list=True)
    async def get(self, query: ListQuery) -> Page[records.Announcement]:
        return await self.manager.operations.announcements.page(self.caller, query)

    @operation(
        "Create an announcement",
        tag=_TAG,
        body=NewAnnouncement,
        returns=Announcement,
        status=HTTPStatus.CREATED,
    )
    async def post(self, body: NewAnnouncement) -> records.Announcement:
        spec = body.given_fields()
        return await self.manager.operations.announcements.create(self.caller, spec)


class CurrentAnnouncementsHandler(APIHandler):
    @operation(
        "List the current announcements for the caller",
        tag=_TAG,
        returns=CurrentAnnouncement,
        is_list=True,
        is_for_sessions=True,
        parameters={"is_dismissed": "false: only those that the caller has not dismissed"},
    )
    async def get(self, query: ListQuery) -> Page[records.CurrentAnnouncement]:
        return await self.manager.operations.announcements.current(self.caller, query)


class AnnouncementHandler(APIHandler):
    @operation("Read an announcement", tag=_TAG, returns=Announcement)
    async def get(self, key: str) -> records.Announcement:
        return await self.manager.operations.announcements.get(self.caller, key)

    @operation("Change an announcement", tag=_TAG, body=AnnouncementChange, returns=Announcement)
    async def patch(self, key: str, body: AnnouncementChange) -> records.Announcement:
        changes = body.given_fields()
        return await self.manager.operations.announcements.update(self.caller, key, changes)

    @operation("Delete an announcement", tag=_TAG, status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str) -> None:
        await self.manager.operations.announcements.delete(self.caller, key)


class DismissalHandler(APIHandler):
    @operation(
        "Dismiss an announcement for the caller",
        tag=_TAG,
        status=HTTPStatus.NO_CONTENT,
        works_when_read_only=True,
    )
    async def put(self, key: str) -> None:
        await self.manager.operations.announcements.dismiss(self.caller, key)


ROUTES = [
    ("/announcements", AnnouncementsHandler),
    ("/announcements/current", CurrentAnnouncementsHandler),
    (r"/announcements/(?P<key>[^/]+)", AnnouncementHandler),
    (r"/announcements/(?P<key>[^/]+)/dismissal", DismissalHandler),
]
