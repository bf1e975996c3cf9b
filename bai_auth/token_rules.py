"""Validation of the request body on the Hub's route that creates API tokens.

JupyterHub 6 (tested: 6.1.1) fails with HTTP 500 if the body is not an object or the note is not a
string, and does not check whether the database can store the note. No upstream issue is known.
`tests/spawner/test_hub_patches.py` fails when the overridden method changes.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from jupyterhub.apihandlers.users import UserTokenListAPIHandler
from tornado import web

from bai_services.core.display_text import text_problem

MAX_NOTE_LENGTH = 200


class TokenListHandler(UserTokenListAPIHandler):
    """Lists and creates the API tokens of a user."""

    async def post(self, user_name: str) -> None:
        reject_malformed(self.get_json_body())
        await super().post(user_name)


def reject_malformed(body: Any) -> None:
    """Raise a 400 if the body of a token request, or the note or lifetime in it, is invalid.

    A note is invalid if it is too long, or if ``text_problem`` finds a problem, for example a
    character that the database cannot store (lone surrogates; NUL on PostgreSQL).
    """
    if body is None:
        return
    if not isinstance(body, dict):
        raise web.HTTPError(HTTPStatus.BAD_REQUEST, "the body must be a JSON object")
    note = body.get("note")
    if note is not None and not isinstance(note, str):
        raise web.HTTPError(HTTPStatus.BAD_REQUEST, "note must be a string or null")
    if note is not None and len(note) > MAX_NOTE_LENGTH:
        raise web.HTTPError(
            HTTPStatus.BAD_REQUEST,
            f"note has {len(note)} characters; at most {MAX_NOTE_LENGTH} are allowed",
        )
    if note is not None and (problem := text_problem(note)):
        raise web.HTTPError(HTTPStatus.BAD_REQUEST, f"note: {problem}")
    seconds = body.get("expires_in")
    if isinstance(seconds, bool) or (isinstance(seconds, int) and seconds < 1):
        raise web.HTTPError(
            HTTPStatus.BAD_REQUEST, "expires_in must be null or a number of seconds, at least 1"
        )
