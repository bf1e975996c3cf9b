"""The mail queue: stores mails, and delivers them with retries."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta

from bai_services.core import names
from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import Conflict, Unavailable
from bai_services.core.mail import DEFAULT_LIFETIME, Mail, MailStatus, SentTestMail, retry_delay
from bai_services.db.database import Database
from bai_services.db.mails import MailStore

from ..accounts import authorizer
from ..audit import Audit
from ..clock import Clock
from ..loop import Loop
from ..metrics import Metrics
from ..settings import MailServer, Settings
from .messages import message_of
from .smtp import SendFailed, send

log = logging.getLogger(__name__)

TICK_SECONDS = 5.0
MAX_MAILS_PER_STEP = 20

# Returns the kind of the texts and their values, or None if the mail must not be sent.
Prepare = Callable[[Mail], Awaitable[tuple[str, Mapping[str, str]] | None]]


class Mails:
    """Sends mails from a queue in the database.

    The manager that holds the lease delivers the mails one after the other. A mail stays in the
    queue until the mail server has accepted it or the mail is given up. If a manager is killed, no
    mail is lost, but one may be sent twice.
    """

    def __init__(
        self,
        database: Database,
        settings: Settings,
        clock: Clock,
        audit: Audit,
        metrics: Metrics,
        hold_lease: Callable[[], Awaitable[int | None]],
    ) -> None:
        self._store = MailStore(database)
        self._server = settings.mail
        self._brand = settings.brand.name
        self._clock = clock
        self._audit = audit
        self._metrics = metrics
        self._hold_lease = hold_lease
        self._preparers: dict[str, Prepare] = {}
        self._loop = Loop("mails", self.step, TICK_SECONDS)

    @property
    def is_configured(self) -> bool:
        return self._server is not None

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()

    def wake(self) -> None:
        """Deliver due mails now."""
        self._loop.wake()

    def prepare(self, kind: str, preparer: Prepare) -> None:
        """Call ``preparer`` immediately before each delivery of a mail of this kind.

        It can add values that must not be stored in the queue, such as a link with a secret.
        """
        self._preparers[kind] = preparer

    def new(
        self,
        kind: str,
        recipient: str,
        language: str,
        lifetime: timedelta = DEFAULT_LIFETIME,
        **values: str,
    ) -> Mail:
        """Return a mail that a store inserts in the transaction of a change (``db.mails``)."""
        now = self._clock()
        return Mail(str(uuid.uuid4()), now, kind, recipient, language, now + lifetime, values)

    async def add(self, mail: Mail) -> None:
        """Insert a mail into the queue."""
        await self._store.add(mail)
        self.wake()

    async def status(self, caller: Caller) -> MailStatus:
        """Return the settings of the mail server, and the state of the queue."""
        authorizer.require(caller, "mail.read")
        server, (pending, last_error) = self._server, await self._store.summary()
        if server is None:
            return MailStatus(False, "", "", "", pending, last_error)
        return MailStatus(True, server.address, server.security, server.sender, pending, last_error)

    async def send_test(self, caller: Caller, recipient: str, language: str) -> SentTestMail:
        """Send a test mail at once, without the queue.

        Raises
        ------
        Conflict
            If no mail server is configured.
        Unavailable
            If the mail server does not accept the mail; the message contains its response.
        """
        authorizer.require(caller, "mail.test")
        address = names.check_email(recipient)
        if self._server is None:
            raise Conflict("no mail server is configured: set BAI_MAIL_HOST and BAI_MAIL_FROM")
        entry = self._audit.entry(caller, "mail.test", address)
        await self._audit.add(entry)
        mail = self.new("test", address, language)
        try:
            await self._deliver(self._server, mail, mail.kind, {})
        except SendFailed as error:
            raise Unavailable(f"the mail was not sent: {error}") from error
        return SentTestMail(address, self._server.address)

    async def step(self) -> None:
        """Deliver the due mails."""
        if self._server is None or await self._hold_lease() is None:
            return
        due = await self._store.due(self._clock(), MAX_MAILS_PER_STEP)
        for mail in due:
            # During a delivery, which can take a minute, another manager can acquire the lease.
            if await self._hold_lease() is None:
                return
            if not await self._process(self._server, mail):
                # The mail server cannot be used: avoid a timeout for each mail.
                return
        if len(due) == MAX_MAILS_PER_STEP:
            self.wake()

    async def _process(self, server: MailServer, mail: Mail) -> bool:
        """Deliver a mail, or schedule the next attempt; return whether the server can be used."""
        if mail.expires_at <= self._clock():
            await self._give_up(mail, "it has expired")
            return True
        preparer = self._preparers.get(mail.kind)
        try:
            prepared = (mail.kind, mail.values) if preparer is None else await preparer(mail)
        except Exception:
            # A mail that cannot be prepared must not delay the others.
            log.exception("mail %s (%s) cannot be prepared", mail.id, mail.kind)
            await self._record_failure(mail, SendFailed("it cannot be prepared"))
            return True
        if prepared is None:
            await self._store.remove(mail.id)
            return True
        try:
            await self._deliver(server, mail, *prepared)
        except SendFailed as error:
            await self._record_failure(mail, error)
            return error.is_of_message
        await self._store.remove(mail.id)
        self._metrics.mails.labels("sent").inc()
        return True

    async def _deliver(
        self, server: MailServer, mail: Mail, kind: str, values: Mapping[str, str]
    ) -> None:
        try:
            message = message_of(mail, kind, values, server, self._brand)
        except ValueError as error:
            raise SendFailed(str(error), is_final=True) from error
        await send(server, message)

    async def _record_failure(self, mail: Mail, error: SendFailed) -> None:
        if error.is_final:
            await self._give_up(mail, str(error))
            return
        attempts = mail.attempts + 1
        next_at = self._clock() + retry_delay(attempts)
        reason = _without_recipient(mail, str(error))
        log.warning("mail %s (%s), attempt %d: %s", mail.id, mail.kind, attempts, reason)
        self._metrics.mails.labels("failed").inc()
        await self._store.mark_failed(mail.id, attempts, self._clock(), next_at, str(error))

    async def _give_up(self, mail: Mail, reason: str) -> None:
        text = _without_recipient(mail, reason)
        log.error("mail %s (%s) is given up: %s", mail.id, mail.kind, text)
        self._metrics.mails.labels("given-up").inc()
        await self._store.remove(mail.id)


def _without_recipient(mail: Mail, text: str) -> str:
    """Return text without the recipient's address, which servers often repeat, for the log."""
    return re.sub(re.escape(mail.recipient), "the recipient", text, flags=re.IGNORECASE)
