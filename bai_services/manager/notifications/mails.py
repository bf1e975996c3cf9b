"""Notification mails: one mail for all due events of a user."""

from __future__ import annotations

import json
from collections.abc import Mapping

from bai_services.core.coded_text import CodedText
from bai_services.core.mail import Mail
from bai_services.core.usage.periods import zone_of
from bai_services.db.database import Database
from bai_services.db.notifications.inbox import DueEvents, InboxStore
from bai_services.i18n.catalogue import translator

from ..clock import Clock
from ..mail.mails import Mails
from .texts import Links, text_of, title_of

# Kinds of mails: one event, or several.
ONE, SEVERAL = "notification", "notification_digest"


class NotificationMails:
    """Puts mails into the queue, and creates their texts immediately before the delivery."""

    def __init__(self, database: Database, mails: Mails, links: Links, clock: Clock) -> None:
        self._store = InboxStore(database)
        self._mails = mails
        self._links = links
        self._clock = clock
        for kind in (ONE, SEVERAL):
            mails.prepare(kind, self._prepare)

    @property
    def is_configured(self) -> bool:
        return self._mails.is_configured

    async def enqueue_due(self) -> None:
        """Put the mails that are due into the queue."""
        while await self._store.enqueue_due_mails(self._clock(), self._mail_of):
            self._mails.wake()

    def _mail_of(self, due: DueEvents) -> Mail:
        return self._mails.new(
            ONE if len(due.events) == 1 else SEVERAL,
            due.email,
            due.settings.language,
            event=due.events[0]["event"],
            events=json.dumps(due.events),
            zone=due.settings.time_zone,
            more=str(due.more),
        )

    async def _prepare(self, mail: Mail) -> tuple[str, Mapping[str, str]]:
        translate, zone = translator(mail.language), zone_of(mail.values["zone"])
        paragraphs = []
        for event in json.loads(mail.values["events"]):
            text = text_of(CodedText.from_json(event["text"]), mail.language, zone)
            lines = [f"{title_of(event['event'], mail.language)}: {text}"]
            if link := self._links.url(event["link"]):
                lines.append(link)
            paragraphs.append("\n".join(lines))
        if more := int(mail.values["more"]):
            paragraphs.append(translate("mail.notification_more", count=more))
        if link := self._links.url("settings?tab=notifications"):
            paragraphs.append(translate("mail.notification_settings", link=link))
        title = title_of(mail.values["event"], mail.language)
        return mail.kind, {"title": title, "lines": "\n\n".join(paragraphs)}
