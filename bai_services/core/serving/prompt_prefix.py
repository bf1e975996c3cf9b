"""The beginning of the prompt in the body of a request."""

from __future__ import annotations

import re

MAX_PREFIX_CHARACTERS = 16_384
# The fields of OpenAI-compatible APIs that contain the prompt. In a JSON text inside of JSON, the
# quotation marks are escaped, so that it does not match.
_PROMPT = re.compile(rb'"(?:messages|prompt|input)"\s*:\s*')


def prompt_prefix(body: bytes, characters: int, *, is_complete: bool) -> bytes | None:
    """Return what follows the name of the prompt's field; None: more of the body is needed.

    The body need not be complete, so it is not parsed as JSON: the prefix contains the JSON text of
    the first messages. A body without such a field is its own prompt.

    >>> prompt_prefix(b'{"model": "m", "prompt": "Hello, world"}', 6, is_complete=True)
    b'"Hello'
    """
    found = _PROMPT.search(body)
    if found is not None:
        prefix = body[found.end() : found.end() + characters]
        return prefix if is_complete or len(prefix) == characters else None
    return body[:characters] if is_complete else None
