"""Find the beginning of the prompt in the body of a request."""

from __future__ import annotations

import re

MAX_PREFIX_CHARACTERS = 16_384
# The fields of OpenAI-compatible APIs that contain the prompt. Field names inside of JSON strings
# do not match, because their quotation marks are escaped.
_PROMPT = re.compile(rb'"(?:messages|prompt|input)"\s*:\s*')


def prompt_prefix(body: bytes, characters: int, *, is_complete: bool) -> bytes | None:
    """Return the first bytes of the prompt's field; None: more of the body is needed.

    ``characters``: maximum length, in bytes of the JSON text.

    The body may be incomplete, so it is searched instead of parsed as JSON. Without a prompt field,
    the prefix is the beginning of the body.

    >>> prompt_prefix(b'{"model": "m", "prompt": "Hello, world"}', 6, is_complete=True)
    b'"Hello'
    """
    found = _PROMPT.search(body)
    if found is not None:
        prefix = body[found.end() : found.end() + characters]
        return prefix if is_complete or len(prefix) == characters else None
    return body[:characters] if is_complete else None
