"""Content of spans: attributes and redacted texts, without secrets and personal data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from bai_services.core.errors import BaiError

INTERNAL_ERROR = "internal error"
MAX_TEXT_CHARACTERS = 200

# Spans have only these attributes: none of them describes a person.
ATTRIBUTES = frozenset(
    {
        "bai.cancelled",
        "bai.endpoint.id",
        "bai.engine",
        "bai.image",
        "bai.kernel.count",
        "bai.kernel.id",
        "bai.pass.placed",
        "bai.priority",
        "bai.resource_group",
        "bai.restart_count",
        "bai.role",
        "bai.session.id",
        "bai.session.status",
        "bai.session.type",
        "bai.started_by",
        "bai.work.kind",
        "error.type",
        "http.request.method",
        "http.response.status_code",
        "http.route",
    }
)
Attribute = str | int | bool

# Parts of a text that can be a secret or describe a person. The id of a session is neither.
_HIDDEN = re.compile(
    r"""
    (?P<id>\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b)
    | [^\s@/:]+ (?: :[^\s@]* )? @ [^\s/,;]+    # e-mail addresses, credentials in URLs
    | (?<=\S) [?] \S+                         # query strings
    | \b(?i:bearer|basic|token|password|secret|key) (?:\s*[=:]\s*|\s+) \S+
    | [A-Za-z0-9+_~=/-]{20,}                  # random texts
    """,
    re.VERBOSE,
)
_WORDS = re.compile(r"[a-z]+(?:[-_/.][a-z]+)*")


class Span:
    """A span while tracing is off: its methods do nothing."""

    def set(self, attributes: Mapping[str, Attribute]) -> None:
        """Add attributes, whose names must be in ``ATTRIBUTES``."""

    def fail(self, reason: str, code: str = "") -> None:
        """Set the status to an error, with a text for users; it is redacted."""

    def reject(self, code: str) -> None:
        """Record an error of the caller; the status of the span remains unset."""


def reason_of(error: BaseException) -> str:
    """Return the text of an error for users; the text of other exceptions can contain anything."""
    return error.message if isinstance(error, BaiError) else INTERNAL_ERROR


def code_of(error: BaseException) -> str:
    return error.code if isinstance(error, BaiError) else type(error).__name__


def redacted(text: str, hidden: tuple[str, ...] = ()) -> str:
    """Return the first line of a text without secrets, e-mail addresses and the ``hidden`` texts.

    The text is shortened to ``MAX_TEXT_CHARACTERS``.
    """
    line = text.strip().partition("\n")[0][: 4 * MAX_TEXT_CHARACTERS]
    if words := "|".join(map(re.escape, filter(None, hidden))):
        line = re.sub(rf"(?<!\w)(?:{words})(?!\w)", "[user]", line, flags=re.IGNORECASE)
    return _HIDDEN.sub(_replacement, line)[:MAX_TEXT_CHARACTERS]


def _replacement(match: re.Match[str]) -> str:
    if match["id"] or _WORDS.fullmatch(match[0]):
        return match[0]
    return "[removed]"


def checked(attributes: Mapping[str, Any]) -> dict[str, Attribute]:
    """Return the known attributes with a value; texts are shortened."""
    return {
        name: value[:MAX_TEXT_CHARACTERS] if isinstance(value, str) else value
        for name, value in attributes.items()
        if name in ATTRIBUTES and value is not None
    }
