"""Notification settings of a user, with the field names of the REST API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time
from zoneinfo import ZoneInfo

from ..errors import InvalidRequest
from ..usage.periods import zone_of
from ..user_input import shown
from .catalogue import EVENTS, Channel, EventName, EventType
from .timing import Digest, QuietHours, mail_time, message_time, read_time

DEFAULT_ZONE = "UTC"
DEFAULT_DIGEST_TIME = "08:00"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationSettings:
    """Settings of a user; without quiet hours, ``quiet_starts`` and ``quiet_ends`` are empty.

    ``channels``: the chosen channels by event; events with default channels are omitted.
    """

    language: str = "en"
    time_zone: str = DEFAULT_ZONE
    quiet_starts: str = ""
    quiet_ends: str = ""
    digest: str = Digest.NONE
    digest_time: str = DEFAULT_DIGEST_TIME
    channels: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.time_zone)

    @property
    def quiet_hours(self) -> QuietHours | None:
        if not self.quiet_starts:
            return None
        starts, ends = time.fromisoformat(self.quiet_starts), time.fromisoformat(self.quiet_ends)
        return QuietHours(starts, ends, self.zone)

    def channels_of(self, event: EventType) -> frozenset[Channel]:
        chosen = self.channels.get(event.name)
        return event.defaults if chosen is None else frozenset(map(Channel, chosen))

    def mail_time(self, event: EventType, at: datetime) -> datetime:
        """Return the time at which the mail for an event is sent."""
        if event.is_urgent:
            return at
        digest_time = time.fromisoformat(self.digest_time)
        return mail_time(at, self.quiet_hours, Digest(self.digest), digest_time, self.zone)

    def message_time(self, event: EventType, at: datetime) -> datetime:
        """Return the time at which the user's webhooks are called for an event."""
        return at if event.is_urgent else message_time(at, self.quiet_hours)


def check_settings(settings: NotificationSettings) -> None:
    """Raise ``InvalidRequest`` if a field is not valid."""
    zone_of(settings.time_zone)
    Digest(settings.digest)
    read_time(settings.digest_time, "digest_time")
    if bool(settings.quiet_starts) != bool(settings.quiet_ends):
        raise InvalidRequest(
            "quiet hours need both quiet_starts and quiet_ends", field="quiet_starts"
        )
    if settings.quiet_starts:
        starts = read_time(settings.quiet_starts, "quiet_starts")
        if starts == read_time(settings.quiet_ends, "quiet_ends"):
            raise InvalidRequest("quiet_ends must differ from quiet_starts", field="quiet_ends")
    for name, chosen in settings.channels.items():
        if name not in EVENTS:
            raise InvalidRequest(f"there is no event {shown(name)!r}", field="channels")
        for channel in chosen:
            if channel not in set(Channel):
                raise InvalidRequest(f"{shown(channel)!r} is not a channel", field="channels")
        if name == EventName.MAIL_FAILING and Channel.MAIL in chosen:
            raise InvalidRequest("mail-failing cannot be sent by mail", field="channels")
