"""Two things that each start costs the Hub and that nobody has anything of; used by its settings.

They are no settings of JupyterHub's, so its functions are replaced, before it has begun to use
them. Where a later JupyterHub has them no more, nothing is replaced and all works as it would.
"""

from __future__ import annotations

import re
from typing import Any

from jupyterhub import orm
from jupyterhub.oauth import provider
from sqlalchemy import Engine

# What the Hub makes as a server's token: a random UUID (version 4), which nobody can guess.
_GENERATED = re.compile(r"[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}")


def make_lean() -> None:
    """Leave both out of every start of the Hub that is being configured."""
    _hash_generated_secrets_once()
    _ask_no_file_whether_it_is_there()


def _hash_generated_secrets_once() -> None:
    """Hash the OAuth secret of a server as the Hub hashes the same token beside it: in one round.

    ``orm.APIToken`` says of generated tokens that they need no rounds. The OAuth client of the
    server has the same token as its secret and is given 16,384, which protects nothing: whoever
    has the database has the other hash. Secrets that somebody chose keep their rounds. How many
    there were is part of each hash, so that old and new ones are compared alike.
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


def _ask_no_file_whether_it_is_there() -> None:
    """Leave out the statement with which the Hub tries its connection before each transaction.

    It is for database servers, which close connections that were idle for long; SQLite has none.
    """
    ask = getattr(orm, "register_ping_connection", None)
    if ask is None:
        return

    def register_ping_connection(engine: Engine) -> None:
        if engine.dialect.name != "sqlite":
            ask(engine)

    orm.register_ping_connection = register_ping_connection
