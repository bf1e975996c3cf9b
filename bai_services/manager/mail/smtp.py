"""Delivery of one message to the mail server over SMTP."""

from __future__ import annotations

import asyncio
from email.message import EmailMessage

import aiosmtplib

from ..settings import MailServer

# Timeouts of a single command and of a whole delivery.
COMMAND_TIMEOUT_SECONDS = 20.0
TOTAL_TIMEOUT_SECONDS = 60.0
_MAX_REPLY_CHARACTERS = 160
# SMTP reply 421: the server is closing the connection. It can be the reply to any command.
CLOSING = 421


class SendFailed(Exception):
    """A message that was not delivered.

    ``is_final``: the message is invalid or was rejected, so a retry would fail as well.
    ``is_of_message``: this message is the cause. Otherwise the server or its settings may be the
    cause, and other messages may also fail.
    """

    def __init__(self, text: str, *, is_final: bool = False, is_of_message: bool = False) -> None:
        super().__init__(text)
        self.is_final = is_final
        self.is_of_message = is_final or is_of_message


async def send(server: MailServer, message: EmailMessage) -> None:
    """Deliver a message; return when the mail server has accepted it.

    Raises
    ------
    SendFailed
        If the message was not accepted.
    """
    client = aiosmtplib.SMTP(
        hostname=server.host,
        port=server.port,
        username=server.user or None,
        password=server.password or None,
        use_tls=server.security == "tls",
        # With True, the delivery fails if the server does not offer STARTTLS, instead of continuing
        # in plain text.
        start_tls=server.security == "starttls",
        timeout=COMMAND_TIMEOUT_SECONDS,
    )
    try:
        async with asyncio.timeout(TOTAL_TIMEOUT_SECONDS), client:
            await client.send_message(message)
    except (aiosmtplib.SMTPException, OSError, ValueError) as error:
        # TimeoutError is an OSError. ValueError: the message has an address that cannot be encoded.
        raise _send_failed(server, error) from error


def _send_failed(server: MailServer, error: Exception) -> SendFailed:
    if isinstance(error, aiosmtplib.SMTPRecipientsRefused):
        replies = [_reply_text(one.code, one.message) for one in error.recipients]
        codes = [one.code for one in error.recipients]
        return SendFailed(
            f"the recipient was rejected: {'; '.join(replies)}",
            is_final=all(code >= 500 for code in codes),
            is_of_message=CLOSING not in codes,
        )
    if isinstance(error, aiosmtplib.SMTPResponseException):
        is_final = isinstance(error, aiosmtplib.SMTPDataError) and error.code >= 500
        text = _reply_text(error.code, error.message)
        return SendFailed(f"{server.address} responded: {text}", is_final=is_final)
    if isinstance(error, (aiosmtplib.SMTPNotSupported, ValueError)):
        is_final = isinstance(error, ValueError)
        return SendFailed(
            f"{server.address} cannot be used: {_clean(str(error))}", is_final=is_final
        )
    reason = _clean(str(error)) or type(error).__name__
    return SendFailed(f"{server.address} cannot be reached: {reason}")


def _reply_text(code: int, text: str) -> str:
    return _clean(f"{code} {text}")


def _clean(text: str) -> str:
    """Return text of the server on one line, without control characters."""
    line = " ".join(text.split())
    return "".join(char for char in line if char.isprintable())[:_MAX_REPLY_CHARACTERS]
