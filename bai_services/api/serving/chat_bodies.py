"""Request bodies of chats. The manager stores them; the page sends messages to endpoints itself."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints
from pydantic.functional_validators import AfterValidator

from bai_services.core.serving.chats import MAX_TITLE

from ..fields import Body, Count, NameText, ShortText, readable

MAX_CARDS = 4
MAX_MESSAGES = 400  # per card
MAX_MESSAGE = 256 * 1024
MAX_SYSTEM_PROMPT = 32 * 1024
MAX_ATTACHMENTS = 8  # per message

_WITHOUT_NUL = r"^[^\x00]*$"
Title = Annotated[
    str,
    StringConstraints(max_length=MAX_TITLE, strip_whitespace=True),
    AfterValidator(readable),
]
MessageText = Annotated[str, StringConstraints(max_length=MAX_MESSAGE, pattern=_WITHOUT_NUL)]
Prompt = Annotated[str, StringConstraints(max_length=MAX_SYSTEM_PROMPT, pattern=_WITHOUT_NUL)]


class ChatAttachment(Body):
    """A file that was sent with a message. The content of images is not stored."""

    name: ShortText
    kind: Literal["text", "image"]
    text: MessageText = ""


class ChatMessage(Body):
    """``first_token_ms``, ``total_ms``: time from the request to the first part of the answer, and
    to its end. ``error``: why the answer is incomplete.
    """

    role: Literal["user", "assistant"]
    text: MessageText
    attachments: list[ChatAttachment] = Field(default=[], max_length=MAX_ATTACHMENTS)
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    first_token_ms: Count | None = None
    total_ms: Count | None = None
    is_stopped: bool = False
    error: ShortText = ""


class ChatParameters(Body):
    """Parameters of the requests; null parameters are not sent."""

    max_tokens: int | None = Field(default=None, ge=1, le=1_000_000)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_k: int | None = Field(default=None, ge=1, le=1_000_000)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)


class ChatCard(Body):
    """A conversation with one model. ``endpoint``: its name. ``base_path``: path of its API."""

    endpoint: NameText = ""
    base_path: ShortText = "v1"
    model: ShortText = ""
    system: Prompt = ""
    parameters: ChatParameters = ChatParameters()
    messages: list[ChatMessage] = Field(default=[], max_length=MAX_MESSAGES)


Cards = Annotated[list[ChatCard], Field(min_length=1, max_length=MAX_CARDS)]


class NewChat(Body):
    """``title``: the default is the beginning of the first message."""

    title: Title = ""
    cards: Cards


class ChatChange(Body):
    """``version``: the version that you have read; if there is a newer one, you get a conflict."""

    title: Title | None = None
    cards: Cards | None = None
    version: Count | None = None
