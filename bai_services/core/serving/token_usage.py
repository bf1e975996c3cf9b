"""Read the input and output tokens of a response from its JSON object ``usage``.

The response of a model is untrusted: only the last bytes are kept, and numbers are limited.
"""

from __future__ import annotations

import json
from typing import Any

# Number of bytes kept from the end of a response: OpenAI-compatible servers send `usage` last.
KEPT_BYTES = 16 * 1024
MAX_TOKENS = 10**9
# Parts of the paths of requests whose responses have `usage`: the APIs of OpenAI and Anthropic, and
# additions of vLLM and SGLang.
USAGE_PATHS = (
    "/completions", "/responses", "/messages", "/embeddings", "/transcriptions", "/translations",
    "/rerank", "/score", "/classify", "/pooling",
)  # fmt: skip
_FIELD = b'"usage"'
_NAMES = (("prompt_tokens", "completion_tokens"), ("input_tokens", "output_tokens"))


class UsageReader:
    """Keeps the end of a response; the cost of adding a chunk is constant per byte."""

    __slots__ = ("_tail",)

    def __init__(self) -> None:
        self._tail = bytearray()

    def add(self, piece: bytes) -> None:
        tail = self._tail
        tail += piece
        # Allow twice the size, so that bytes are moved rarely.
        if len(tail) > 2 * KEPT_BYTES:
            del tail[:-KEPT_BYTES]

    def result(self) -> tuple[int, int]:
        """Return input and output tokens; zeros if the response does not report them."""
        return tokens_in(bytes(self._tail[-KEPT_BYTES:]))


def tokens_in(tail: bytes) -> tuple[int, int]:
    """Return input and output tokens of the last object ``usage`` in ``tail``.

    Quotation marks inside of JSON strings are escaped, so generated text is never read as a field.
    """
    end = len(tail)
    # A stream may end with `"usage": null`, after a chunk that has the numbers.
    for _ in range(8):
        at = tail.rfind(_FIELD, 0, end)
        if at < 0:
            break
        found = _counts(tail[at + len(_FIELD) :])
        if found is not None:
            return found
        end = at
    return 0, 0


def _counts(text: bytes) -> tuple[int, int] | None:
    rest = text.lstrip()
    if not rest.startswith(b":"):
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(rest[1:].decode("utf-8", "replace").lstrip())
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    for names in _NAMES:
        if any(name in value for name in names):
            return _number(value.get(names[0])), _number(value.get(names[1]))
    return None


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return min(max(value, 0), MAX_TOKENS)
