"""Tags of objects, and the text in which the database stores them."""

from __future__ import annotations

from collections.abc import Sequence

from .display_text import text_problem
from .errors import InvalidRequest
from .user_input import shown

MAX_TAGS = 16
MAX_TAG = 64


def check_tags(tags: Sequence[str]) -> list[str]:
    """Return tags in alphabetical order, without duplicates.

    Raises
    ------
    InvalidRequest
        If there are too many tags, or a tag is empty, too long, or has a comma or a character that
        other users must not be shown.
    """
    found = sorted({tag.strip() for tag in tags})
    if len(found) > MAX_TAGS:
        raise InvalidRequest(f"an object can have at most {MAX_TAGS} tags", field="tags")
    for tag in found:
        if not 1 <= len(tag) <= MAX_TAG or "," in tag:
            raise InvalidRequest(
                f"{shown(tag)!r} cannot be a tag: use 1 to {MAX_TAG} characters and no comma",
                field="tags",
            )
        if problem := text_problem(tag):
            raise InvalidRequest(f"tag {shown(tag)!r}: {problem}", field="tags")
    return found


def joined(tags: Sequence[str]) -> str:
    """Return tags in their stored form: separated by commas, with a comma at the beginning and the
    end.
    """
    return f",{','.join(tags)}," if tags else ""


def separated(text: str) -> list[str]:
    """Return the tags in a stored text; the inverse of ``joined``."""
    return [tag for tag in text.split(",") if tag]
