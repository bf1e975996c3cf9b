"""`/mail`: the mail server's settings, the mail queue, and a test mail."""

from __future__ import annotations

from bai_services.core import mail as records
from bai_services.i18n.catalogue import pick_language

from .base import APIHandler, operation
from .fields import Body, NameText, ResponseModel


class TestMail(Body):
    address: NameText


class MailStatus(ResponseModel):
    """``last_error``: error of the last failed delivery of a mail that is still in the queue."""

    is_configured: bool
    server: str
    security: str
    sender: str
    pending: int
    last_error: str


class SentTestMail(ResponseModel):
    recipient: str
    server: str


class MailHandler(APIHandler):
    @operation("Read the settings of the mail server", tag="mail", returns=MailStatus)
    async def get(self) -> records.MailStatus:
        return await self.manager.mails.status(self.caller)


class MailTestHandler(APIHandler):
    @operation(
        "Send a test mail at once",
        tag="mail",
        body=TestMail,
        returns=SentTestMail,
        is_expensive=True,
    )
    async def post(self, body: TestMail) -> records.SentTestMail:
        language = pick_language("", self.request.headers.get("Accept-Language", ""))
        return await self.manager.mails.send_test(self.caller, body.address, language)


ROUTES = [("/mail", MailHandler), ("/mail/test", MailTestHandler)]
