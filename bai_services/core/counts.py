"""Counts with their nouns in messages."""

from __future__ import annotations

import re

_PLURAL_ENDING = re.compile(r"s\b")


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 live session``, ``2 live sessions``.

    ``noun`` is a phrase in the plural. For a count of 1, the final ``s`` of the first word that
    ends in ``s`` is removed.
    """
    return f"{count} {_PLURAL_ENDING.sub('', noun, count=1) if count == 1 else noun}"


def with_article(noun: str) -> str:
    """Return an English noun with its indefinite article.

    >>> with_article("image alias"), with_article("user")
    ('an image alias', 'a user')
    """
    # The letter u is missing because "user" begins with a consonant sound.
    return f"an {noun}" if noun[0] in "aeio" else f"a {noun}"
