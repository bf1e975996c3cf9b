"""Patches of JupyterHub that remove two needless costs of each spawn; called by its configuration.

JupyterHub has no settings for them, so its functions are replaced before it uses them. Where a
later JupyterHub lacks a function, nothing is replaced. They apply to JupyterHub 6 (tested: 6.1.1);
`tests/spawner/test_hub_patches.py` fails when a function changes on which a patch relies.
"""

from __future__ import annotations

import re
from typing import Any

from jupyterhub import orm
from jupyterhub.oauth import provider
from sqlalchemy import Engine

# The form of a token that the Hub generates: a random UUID (version 4).
_GENERATED = re.compile(r"[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}")


def apply_hub_patches() -> None:
    """Apply both patches to the Hub that is being configured."""
    _hash_generated_secrets_once()
    _do_not_ping_sqlite()


def _hash_generated_secrets_once() -> None:
    """Hash the OAuth secret of a server in one round, as the Hub hashes the same token elsewhere.

    Upstream uses one round for generated API tokens, because a random UUID cannot be guessed
    (jupyterhub/jupyterhub#1258, #1299). The OAuth client of a server has the same token as its
    secret, but is given 16,384 rounds; no upstream issue known. They protect nothing: a reader of
    the database has the other hash too. Secrets that somebody chose keep their rounds. The number
    of rounds is part of each hash, so old and new ones are compared in the same way.
    """
    slow = getattr(provider, "hash_token", None)
    rounds = getattr(orm.APIToken, "generated_rounds", None)
    if slow is None or rounds is None:
        return

    def hash_token(token: str, *args: Any, **options: Any) -> str:
        if not args and not options and _GENERATED.fullmatch(token):
            options = {"rounds": rounds}
        hashed: str = slow(token, *args, **options)
        return hashed

    provider.hash_token = hash_token


def _do_not_ping_sqlite() -> None:
    """Omit the statement with which the Hub tests its connection before each transaction.

    It is for database servers, which close idle connections (jupyterhub/jupyterhub#450, #1626);
    SQLite has no connection to lose. No upstream issue known for SQLite.
    """
    ping = getattr(orm, "register_ping_connection", None)
    if ping is None:
        return

    def register_ping_connection(engine: Engine) -> None:
        if engine.dialect.name != "sqlite":
            ping(engine)

    orm.register_ping_connection = register_ping_connection
