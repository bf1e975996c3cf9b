"""Settings of JupyterHub that the demo and installations have in common."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

import bai_auth
import bai_spawner
from bai_services.branding import Brand

MANAGER_ROLE: Mapping[str, Any] = {
    "name": "bai-manager",
    "services": ["bai"],
    "scopes": [
        # create the Hub user of an account whose session starts before a sign-in
        "admin:users",
        "admin:servers",  # create, start, stop and remove the servers of sessions
        "tokens",  # issue tokens for the CLI; revoke them when an account is deactivated
        "read:hub",  # check the Hub's health
    ],
}

# The gateway processes untrusted requests, so it gets only these variables and no other secrets.
_FOR_GATEWAY = (
    "BAI_GATEWAY_", "BAI_MANAGER_URL", "BAI_METRICS_TOKEN_FILE", "BAI_TRACING",
    "BAI_TRUSTED_PROXIES", "HOME", "OTEL_", "TMPDIR", "LD_LIBRARY_PATH", "SSL_CERT_",
)  # fmt: skip


def for_gateway(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the gateway needs."""
    return {name: text for name, text in environment.items() if name.startswith(_FOR_GATEWAY)}


def prepare_sqlite(path: Path) -> str:
    """Prepare the Hub's SQLite database at ``path``; return its URL.

    The Hub makes about 12 commits per session start, which a write-ahead log (WAL) makes cheap. The
    mode is stored in the database file.
    """
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode=WAL")
    event.listen(Engine, "connect", _commit_without_fsync)
    return f"sqlite:///{path}"


def _commit_without_fsync(connection: object, record: object) -> None:
    # With a write-ahead log, a killed process loses no commits. A power failure can lose the last
    # commits, and with them the most recently started sessions.
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous=NORMAL")


def configure_pages_and_sessions(c: Any, brand: Brand) -> None:
    """Set authenticator, spawner, pages and scopes in the configuration ``c`` of traitlets."""
    c.JupyterHub.authenticator_class = "bai"
    c.JupyterHub.spawner_class = "bai"
    # Sessions continue while the Hub is down; a restarted Hub finds them by their saved state.
    c.JupyterHub.cleanup_servers = False
    c.JupyterHub.allow_named_servers = True
    # Policies in bai-hub's database limit the number of sessions. This limit only keeps the Hub's
    # event loop responsive.
    c.JupyterHub.concurrent_spawn_limit = 50
    c.JupyterHub.active_server_limit = 0
    # A limit, so that tokens that users have forgotten expire.
    c.JupyterHub.token_expires_in_max_seconds = 365 * 24 * 3600
    c.JupyterHub.template_paths = [
        str(Path(path) / "templates")
        for package in (bai_auth, bai_spawner)
        for path in package.__path__
    ]
    # Hide the XSRF cookie from scripts: an app in a session has the same origin and could otherwise
    # read it through a frame with an address of the Hub. The Hub's own scripts read the token from
    # their page.
    c.JupyterHub.tornado_settings = {"xsrf_cookie_kwargs": {"httponly": True}}
    c.JupyterHub.template_vars = {"brand": brand}
    if brand.logo is not None:
        c.JupyterHub.logo_file = str(brand.logo)
    # The sign-in leads to the web UI, whose account menu links to the Hub's own pages.
    c.JupyterHub.default_url = "/services/bai/"
    c.JupyterHub.custom_scopes = {
        "custom:bai:session": {"description": "Access the resource manager as a session."}
    }
    # The second scope is for the tokens of sessions. JupyterHub also requires it of the user: a
    # server's token cannot have a scope that the server's owner lacks.
    c.JupyterHub.extra_user_scopes = ["access:services!service=bai", "custom:bai:session"]
