"""A real mail server (SMTP) in a thread, which keeps the mails that it receives."""

from __future__ import annotations

import re
import ssl
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import SMTPUTF8
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.testbed.ports import free_port
from tests.testbed.wait import wait_until

USER, PASSWORD = "mailer", "Mail-pass-1"


@dataclass
class ReceivedMail:
    sender: str
    recipients: list[str]
    message: EmailMessage

    @property
    def subject(self) -> str:
        return str(self.message["Subject"])

    @property
    def text(self) -> str:
        return str(self.message.get_content())

    @property
    def link(self) -> str:
        """The first URL in the text."""
        found = re.search(r"https?://\S+", self.text)
        assert found is not None, self.text
        return found[0]


@dataclass
class MailServerThread:
    """``responses``: responses other than 250 by recipient: ``{"a@b.c": "550 unknown"}``."""

    port: int
    mails: list[ReceivedMail] = field(default_factory=list)
    responses: dict[str, str] = field(default_factory=dict)
    controller: Any = None

    async def handle_RCPT(
        self, server: Any, session: Any, envelope: Any, address: str, options: Any
    ) -> str:
        if response := self.responses.get(address):
            return response
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        message = message_from_bytes(envelope.content, policy=SMTPUTF8)
        assert isinstance(message, EmailMessage)
        self.mails.append(ReceivedMail(envelope.mail_from, envelope.rcpt_tos, message))
        return "250 OK"

    def to(self, recipient: str) -> list[ReceivedMail]:
        return [mail for mail in self.mails if recipient in mail.recipients]

    def wait_for(self, recipient: str, count: int = 1, seconds: float = 30) -> ReceivedMail:
        """Wait until ``count`` mails to the recipient have arrived; return the newest one."""
        wait_until(lambda: len(self.to(recipient)) >= count, seconds, f"a mail to {recipient}")
        return self.to(recipient)[-1]

    def environment(self, **more: str) -> dict[str, str]:
        """Return the manager's environment variables for this mail server."""
        return {
            "BAI_MAIL_HOST": "127.0.0.1",
            "BAI_MAIL_PORT": str(self.port),
            "BAI_MAIL_SECURITY": "none",
            "BAI_MAIL_FROM": "hub@example.org",
            **more,
        }


@contextmanager
def serving_mail(
    security: str = "none", certificate: Path | None = None, **options: Any
) -> Iterator[MailServerThread]:
    """Run a mail server on a free port of 127.0.0.1.

    With ``certificate``, the server uses TLS and requires a sign-in as ``USER``.
    """
    made = MailServerThread(free_port())
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        options |= {"auth_required": True, "authenticator": _authenticate}
        if security == "tls":
            # aiosmtpd does not regard implicit TLS as encrypted, so it must not require encryption
            # for the sign-in.
            options |= {"ssl_context": context, "auth_require_tls": False}
            warnings.filterwarnings("ignore", "Requiring AUTH", UserWarning)
        else:
            options |= {"tls_context": context, "require_starttls": True}
    made.controller = Controller(
        made, hostname="127.0.0.1", port=made.port, enable_SMTPUTF8=True, **options
    )
    made.controller.start()
    try:
        yield made
    finally:
        made.controller.stop()


def _authenticate(
    server: Any, session: Any, envelope: Any, mechanism: str, data: Any
) -> AuthResult:
    is_correct = (data.login, data.password) == (USER.encode(), PASSWORD.encode())
    return AuthResult(success=is_correct, handled=is_correct)


def make_certificate(folder: Path) -> Path:
    """Write a self-signed certificate for ``localhost``, with its key, into one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "localhost.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path
