"""Patches of JupyterHub: omit two needless costs of every spawn, translate the Hub's pages, hide
their XSRF tokens from scripts, and roll back failed transactions.

JupyterHub has no settings for this, so the Hub's configuration file calls `apply_hub_patches`,
which replaces five functions of JupyterHub before they are used. A function that a later
JupyterHub no longer has is not replaced. The patches are written for JupyterHub 6 (tested: 6.1.1);
`tests/spawner/test_hub_patches.py` fails if a function on which a patch relies changes.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable
from typing import Any

from jupyterhub import orm
from jupyterhub.handlers import BaseHandler
from jupyterhub.oauth import provider
from sqlalchemy import Engine

from bai_services.branding import Brand
from bai_services.i18n.catalogue import translator_for

# The tokens that the Hub generates are random UUIDs (version 4).
_GENERATED = re.compile(r"[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}")


def apply_hub_patches() -> None:
    """Apply the patches to the Hub that is being configured."""
    _hash_generated_secrets_once()
    _do_not_ping_sqlite()
    _translate_every_page()
    _hide_xsrf_token_from_scripts()
    _roll_back_failed_transactions()


def _hash_generated_secrets_once() -> None:
    """Hash the OAuth client secret of a server with one round instead of 16,384.

    The secret is the server's API token, which JupyterHub already hashes with one round elsewhere,
    because a random UUID cannot be guessed (jupyterhub/jupyterhub#1258, #1299). The 16,384 rounds
    add no protection: an attacker who can read the database attacks the hash with one round. No
    upstream issue is known. Secrets chosen by an administrator keep their rounds. Each hash
    contains its number of rounds, so hashes from before the patch remain valid.
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
    """Omit, for SQLite, the query that tests the database connection before each transaction.

    Database servers need the query, because they close idle connections (jupyterhub/jupyterhub#450,
    #1626). An SQLite connection cannot be lost. No upstream issue is known for SQLite.
    """
    ping = getattr(orm, "register_ping_connection", None)
    if ping is None:
        return

    def register_ping_connection(engine: Engine) -> None:
        if engine.dialect.name != "sqlite":
            ping(engine)

    orm.register_ping_connection = register_ping_connection


def _translate_every_page() -> None:
    """Pass ``translate`` and the default brand to the templates of all pages, for their header.

    The setting `template_vars` gets the user, but not the request, whose cookie and headers
    determine the language. No upstream issue is known.
    """
    original = getattr(BaseHandler, "template_namespace", None)
    if not isinstance(original, property) or original.fget is None:
        return
    read = original.fget

    def template_namespace(handler: BaseHandler) -> dict[str, Any]:
        return {"translate": translator_for(handler), "brand": Brand(), **read(handler)}

    BaseHandler.template_namespace = property(template_namespace)


def _hide_xsrf_token_from_scripts() -> None:
    """Remove the XSRF token from pages that a script requests.

    Without a domain per user, pages of the Hub and apps of sessions have the same origin. The page
    of an app could otherwise fetch a page of the Hub and create an API token of its visitor with
    the XSRF token. JupyterHub checks `Sec-Fetch-Mode` only before it sets the XSRF cookie. No
    upstream issue is known; JupyterHub recommends a domain per user.
    """
    render = getattr(BaseHandler, "render_template", None)
    if render is None:
        return

    def render_template(handler: BaseHandler, name: str, sync: bool = False, **ns: Any) -> Any:
        # With this header, the page that opened this window cannot access the window.
        handler.set_header("Cross-Origin-Opener-Policy", "noopener-allow-popups")
        page = render(handler, name, sync, **ns)
        if handler.request.headers.get("Sec-Fetch-Mode", "navigate") == "navigate":
            return page
        token = handler.xsrf_token.decode("ascii")
        return page.replace(token, "") if sync else _without(page, token)

    BaseHandler.render_template = render_template


async def _without(page: Awaitable[str], text: str) -> str:
    return (await page).replace(text, "")


def _roll_back_failed_transactions() -> None:
    """Roll back a failed transaction at the end of the request that caused it.

    All requests share one database session. JupyterHub rolls it back after an error of SQLAlchemy.
    It does not roll it back if a flush raises another error (a lone surrogate in a text:
    `UnicodeEncodeError`), or if a handler turns the error into a response. The next request, of any
    user, then fails with 403 (jupyterhub/jupyterhub#3566 is a similar fix).
    """
    original = vars(BaseHandler).get("finish")
    if original is None:
        return

    def finish(handler: BaseHandler, *args: Any, **options: Any) -> Any:
        if not handler.db.is_active:
            handler.log.warning("Rolling back a failed transaction")
            handler.db.rollback()
        return original(handler, *args, **options)

    BaseHandler.finish = finish
