"""Base classes and field types of request and response models."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    StrictFloat,
    StrictInt,
    StrictStr,
    StringConstraints,
)
from pydantic_core import PydanticCustomError

from bai_services.core.display_text import text_problem

# NUL is rejected, because PostgreSQL cannot store it.
_WITHOUT_NUL = r"^[^\x00]*$"

NameText = Annotated[str, StringConstraints(max_length=64, pattern=_WITHOUT_NUL)]
ShortText = Annotated[str, StringConstraints(max_length=255, pattern=_WITHOUT_NUL)]
LongText = Annotated[str, StringConstraints(max_length=500, pattern=_WITHOUT_NUL)]
# The password of an account. The limit bounds the cost of hashing; the maximum length of a new
# password is lower.
Secret = Annotated[SecretStr, Field(max_length=4096)]


def readable(text: str) -> str:
    return _checked(text, text_problem(text))


def readable_lines(text: str) -> str:
    return _checked(text, text_problem(text, is_multiline=True))


def _storable(time: datetime) -> datetime:
    """Reject times near the limits of ``datetime``: a conversion or an addition could overflow."""
    if not _FIRST_TIME <= time <= _LAST_TIME:
        raise PydanticCustomError("time_range", "the year must be from 1970 to 9000")
    return time


def _checked(text: str, problem: str) -> str:
    if problem:
        raise PydanticCustomError("display_text", "{problem}", {"problem": problem})
    return text


_FIRST_TIME, _LAST_TIME = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 12, 31, tzinfo=UTC)
Instant = Annotated[AwareDatetime, AfterValidator(_storable)]

# Free texts that other users read.
FullName = Annotated[NameText, AfterValidator(readable)]
Line = Annotated[ShortText, AfterValidator(readable)]
Description = Annotated[LongText, AfterValidator(readable_lines)]

Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
MAX_SLOTS = 100
# Strict, so that true is not accepted as 1.
SlotsInput = Annotated[
    dict[NameText, StrictStr | StrictInt | StrictFloat], Field(max_length=MAX_SLOTS)
]
SlotsOutput = dict[str, str]
Hosts = dict[NameText, list[NameText]]


# Models are completed when they are first used: a manager uses few of them, and completing
# all would take a tenth of the CPU time of its start.
DEFERRED = ConfigDict(defer_build=True)


class Body(BaseModel):
    """A request body. Unknown fields are rejected.

    ``given_fields`` contains only the fields in the request. For other fields, the manager sets the
    initial value or keeps the stored one; their defaults are used only by handlers that read these
    fields directly.
    """

    model_config = DEFERRED | ConfigDict(extra="forbid", allow_inf_nan=False)

    def given_fields(self) -> dict[str, object]:
        """Return the fields that the request contains."""
        return self.model_dump(exclude_unset=True)


class ResponseModel(BaseModel):
    """A response body, for the OpenAPI document and the columns of CSV files.

    Responses are not validated.
    """

    model_config = DEFERRED


class CodedText(ResponseModel):
    """A text as a code with values, so that a client can show it in the user's language.

    A newer manager may have more codes, so show the English text next to this object if ``code`` is
    unknown. Values with names ending in ``_at`` are times, in ``_seconds`` durations. ``parts``:
    texts inside this text.
    """

    code: str
    values: dict[str, str | int]
    parts: list[CodedText]
