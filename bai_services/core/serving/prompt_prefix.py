"""The beginning of the prompt in the body of a request."""

from __future__ import annotations

import re

MAX_PREFIX_CHARACTERS = 16_384
# The fields of OpenAI-compatible APIs that contain the prompt. A field name inside a JSON string
# does not match, because its quotation marks are escaped.
_PROMPT = re.compile(rb'"(?:messages|prompt|input)"\s*:\s*')


def prompt_prefix(body: bytes, characters: int, *, is_complete: bool) -> bytes | None:
    """Return the bytes after the name of the prompt's field; None: more of the body is needed.

    ``characters``: their maximum number, counted as bytes of the JSON text.

    The body may be incomplete, so it is searched, not parsed as JSON. Without such a field, the
    prefix is the beginning of the body.

    >>> prompt_prefix(b'{"model": "m", "prompt": "Hello, world"}', 6, is_complete=True)
    b'"Hello'
    """
    found = _PROMPT.search(body)
    if found is not None:
        prefix = body[found.end() : found.end() + characters]
        return prefix if is_complete or len(prefix) == characters else None
    return body[:characters] if is_complete else None
