"""Announcements: texts that administrators show to users during a period."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from ..accounts.roles import Caller, Role

MAX_TITLE_CHARS = 120
MAX_TEXT_CHARS = 10_000
# Maximum number of stored announcements.
MAX_ANNOUNCEMENTS = 200


class Level(StrEnum):
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Audience(StrEnum):
    EVERYONE = "everyone"
    DOMAIN = "domain"
    PROJECT = "project"
    ROLE = "role"


# Roles that can be the audience of an announcement.
ROLES = (Role.USER, Role.ADMIN, Role.MONITOR, Role.SUPERADMIN)


@dataclass(frozen=True, slots=True)
class Announcement:
    """An announcement; ``text`` is Markdown.

    ``target`` is the name of a domain or role, or the id of a project; ``target_name`` is always a
    name. Both are None for everyone. ``domain`` is the domain of the audience, None if the audience
    is not restricted to a domain. Without ``ends_at``, the period has no end. ``changed_by_role``:
    role of the user who created or last changed the announcement.
    """

    id: str
    created_at: datetime
    version: int
    title: str
    text: str
    level: Level
    audience: Audience
    target: str | None
    target_name: str | None
    domain: str | None
    starts_at: datetime
    ends_at: datetime | None
    author: str
    changed_by_role: str


@dataclass(frozen=True, slots=True)
class CurrentAnnouncement:
    """An announcement as shown to a user; ``is_dismissed``: the user has closed it."""

    id: str
    title: str
    text: str
    level: Level
    starts_at: datetime
    ends_at: datetime | None
    is_dismissed: bool


def is_addressed(announcement: Announcement, caller: Caller, role: Role) -> bool:
    """Return whether the caller belongs to the audience; ``role`` is the caller's account role."""
    target = announcement.target
    match announcement.audience:
        case Audience.EVERYONE:
            return True
        case Audience.DOMAIN:
            return target == caller.domain
        case Audience.PROJECT:
            return target in caller.projects
        case Audience.ROLE:
            return target == role
