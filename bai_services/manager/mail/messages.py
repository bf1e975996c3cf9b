"""E-mail messages: headers, and a translated subject and text for each kind of mail."""

from __future__ import annotations

from collections.abc import Mapping
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP, SMTPUTF8

from bai_services.core.mail import Mail
from bai_services.i18n.catalogue import DEFAULT, LANGUAGES, translator

from ..settings import MailServer


def message_of(
    mail: Mail, kind: str, values: Mapping[str, str], server: MailServer, brand: str
) -> EmailMessage:
    """Return the plain-text message of a mail.

    ``email`` rejects line breaks in headers. Of ``values``, only ``title`` is used in headers; it
    must not contain user input. Only the value ``lines`` may have several lines.

    Raises
    ------
    ValueError
        If the recipient's address cannot be used in a header.
    """
    language = mail.language if mail.language in LANGUAGES else DEFAULT
    translate = translator(language)
    is_ascii = mail.recipient.isascii()
    message = EmailMessage(policy=SMTP if is_ascii else SMTPUTF8)
    try:
        recipient = Address(addr_spec=mail.recipient)
    except Exception as error:
        # The parser of ``email`` raises various exceptions for invalid addresses.
        raise ValueError("the recipient's address is not valid in a mail") from error
    sender = Address(addr_spec=server.sender)
    message["From"] = Address(brand, sender.username, sender.domain)
    message["To"] = recipient
    message["Subject"] = translate(
        f"mail.{kind}_subject", brand=brand, title=values.get("title", "")
    )
    message["Date"] = mail.created_at
    # The same id for each attempt, so that mail programs recognize a duplicate.
    message["Message-ID"] = f"<{mail.id}@{sender.domain}>"
    message["Auto-Submitted"] = "auto-generated"
    texts = {
        name: value if name == "lines" else " ".join(value.split())
        for name, value in values.items()
    }
    paragraphs = (
        translate(f"mail.{kind}_text", brand=brand, **texts),
        translate("mail.footer", brand=brand),
    )
    message.set_content("\n\n".join(paragraphs) + "\n")
    message["Content-Language"] = language  # set_content() deletes earlier ones
    return message
