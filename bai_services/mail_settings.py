"""Read the settings of the mail server from ``BAI_MAIL_*``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bai_services.core import names
from bai_services.core.errors import InvalidRequest
from bai_services.core.ip_addresses import parse_address
from bai_services.core.user_input import read_whole, shown
from bai_services.manager.settings import MailServer

PORTS = {"starttls": 587, "tls": 465, "none": 25}


def read_mail_server(environ: Mapping[str, str]) -> MailServer | None:
    """Return the mail server, None if ``BAI_MAIL_HOST`` is not set.

    Raises
    ------
    SystemExit
        If a variable is invalid, or the password would be sent without encryption; the message
        names the variable.
    """
    host = environ.get("BAI_MAIL_HOST", "").strip()
    if not host:
        return None
    security = environ.get("BAI_MAIL_SECURITY") or "starttls"
    if security not in PORTS:
        raise SystemExit(
            f"BAI_MAIL_SECURITY must be one of {', '.join(PORTS)}, not {shown(security)!r}"
        )
    port_text = environ.get("BAI_MAIL_PORT") or str(PORTS[security])
    port = read_whole(port_text)
    if port is None or not 0 < port < 65536:
        raise SystemExit(f"BAI_MAIL_PORT must be a port number, not {shown(port_text)!r}")
    try:
        sender = names.check_email(environ.get("BAI_MAIL_FROM", ""))
    except InvalidRequest as error:
        raise SystemExit(f"BAI_MAIL_FROM: {error.message}") from None
    user = environ.get("BAI_MAIL_USER", "")
    if user and security == "none" and not _is_this_machine(host):
        raise SystemExit(
            "BAI_MAIL_USER: the password would be sent without encryption; set BAI_MAIL_SECURITY "
            "to starttls or tls"
        )
    password = _password(environ) if user else ""
    return MailServer(host, port, security, sender, user, password)


def _password(environ: Mapping[str, str]) -> str:
    path = environ.get("BAI_MAIL_PASSWORD_FILE", "")
    if not path:
        raise SystemExit("BAI_MAIL_PASSWORD_FILE must name the file with the password of the user")
    try:
        password = Path(path).read_text().strip()
    except OSError as error:
        raise SystemExit(f"BAI_MAIL_PASSWORD_FILE: {path}: {error.strerror}") from None
    if not password:
        raise SystemExit(f"BAI_MAIL_PASSWORD_FILE: {path} is empty")
    return password


def _is_this_machine(host: str) -> bool:
    address = parse_address(host)
    return host == "localhost" or (address is not None and address.is_loopback)
