"""Chats of the web UI with endpoints: their limits and records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ..errors import TooLarge

# Maximum number of chats of a user; the oldest chats are deleted.
MAX_CHATS_PER_USER = 100
# Time after its last change at which a chat is deleted.
CHATS_KEPT_FOR = timedelta(days=90)
MAX_CHAT_BYTES = 512 * 1024
MAX_TITLE = 100
UNTITLED = "Chat"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSummary:
    """A chat in a list; ``size``: bytes of the cards as JSON."""

    id: str
    created_at: datetime
    updated_at: datetime
    version: int
    title: str
    messages: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat(ChatSummary):
    """A chat; its ``cards`` (see ``api/serving/chat_bodies.py``) are shown side by side."""

    cards: Sequence[Mapping[str, Any]]


def chat_size(cards: Sequence[Mapping[str, Any]]) -> int:
    """Return the number of bytes of the cards as JSON.

    Raises
    ------
    TooLarge
        If the cards have more than ``MAX_CHAT_BYTES``.
    """
    size = len(json.dumps(cards, ensure_ascii=False).encode("utf-8", "replace"))
    if size > MAX_CHAT_BYTES:
        raise TooLarge(
            f"the chat has {size} bytes; the maximum is {MAX_CHAT_BYTES}: begin a new chat",
            limit=MAX_CHAT_BYTES,
        )
    return size


def message_count(cards: Iterable[Mapping[str, Any]]) -> int:
    return sum(len(card["messages"]) for card in cards)


def title_of(cards: Iterable[Mapping[str, Any]]) -> str:
    """Return the title of a chat: the first words of the user's first message."""
    texts = (m["text"] for card in cards for m in card["messages"] if m["role"] == "user")
    words = " ".join(next(texts, "")[: 4 * MAX_TITLE].split())
    if len(words) > MAX_TITLE:
        words = words[: MAX_TITLE - 1].rstrip() + "…"
    return words or UNTITLED
