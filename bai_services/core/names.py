"""Validation of user names, e-mail addresses, and names of objects such as domains."""

from __future__ import annotations

import re

from .counts import with_article
from .display_text import text_problem
from .errors import InvalidRequest
from .user_input import shown

MAX_NAME = 64
MAX_EMAIL = 64

# A slug needs no escaping in a Hub group, a path or a label.
_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9_.-]*[a-z0-9])?")
_USERNAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")
_EMAIL = re.compile(r"[^@\s<>(),;:\\\"\[\]\x00-\x1f]+@[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")


def check_slug(what: str, name: str) -> str:
    """Return ``name`` if it is a valid name of an object such as a domain, project or preset.

    A valid name has at most 64 lower-case letters, digits and ``-_.``, and begins and ends with a
    letter or digit. ``--`` and ``..`` are not allowed.

    Raises
    ------
    InvalidRequest
        If the name is not valid. ``what`` is the kind of object in the message.
    """
    is_short = len(name) <= MAX_NAME
    if not (is_short and _SLUG.fullmatch(name)) or ".." in name or "--" in name:
        raise InvalidRequest(
            f"{shown(name)!r} cannot be the name of {with_article(what)}: use 1 to {MAX_NAME} "
            "lower-case letters and digits, with - _ . between them, but without -- and ..",
            field="name",
        )
    return name


def check_username(name: str) -> str:
    """Return the user name in lower case, as the Hub stores it.

    A valid name has 1 to 64 letters, digits and ``-_.``, and begins with a letter or digit. ``..``
    is not allowed.

    Raises
    ------
    InvalidRequest
        If the name is not valid.
    """
    lower = name.strip().lower()
    if len(lower) > MAX_NAME or _USERNAME.fullmatch(lower) is None or ".." in lower:
        raise InvalidRequest(
            f"{shown(name)!r} cannot be a user name: use 1 to {MAX_NAME} letters, digits, - _ and "
            "single dots, and begin with a letter or digit",
            field="username",
        )
    return lower


def check_email(email: str) -> str:
    """Return the e-mail address in lower case.

    Raises
    ------
    InvalidRequest
        If the address does not have the form ``name@host`` or has more than 64 characters.
    """
    lower = email.strip().lower()
    is_written = _EMAIL.fullmatch(lower) is not None and not text_problem(lower)
    if len(lower) > MAX_EMAIL or not is_written or ".." in lower:
        raise InvalidRequest(
            f"{shown(email)!r} is not an e-mail address of at most {MAX_EMAIL} characters",
            field="email",
        )
    return lower
