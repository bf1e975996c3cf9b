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
