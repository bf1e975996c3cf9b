"""Field types shared by several bodies."""

from __future__ import annotations

from typing import Annotated

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictFloat,
    StrictInt,
    StrictStr,
    StringConstraints,
)

# Without NUL, which PostgreSQL cannot store.
_PLAIN = r"^[^\x00]*$"

NameText = Annotated[str, StringConstraints(max_length=64, pattern=_PLAIN)]
ShortText = Annotated[str, StringConstraints(max_length=255, pattern=_PLAIN)]
LongText = Annotated[str, StringConstraints(max_length=500, pattern=_PLAIN)]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
# Strict, so that true is not read as 1.
Slots = dict[str, StrictStr | StrictInt | StrictFloat]
SlotTexts = dict[str, str]
Hosts = dict[NameText, list[NameText]]


class Body(BaseModel):
    """The body of a request: unknown fields are refused, only given fields count.

    The defaults of its fields stand for "not given"; the manager decides the initial values.
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    def given(self) -> dict[str, object]:
        """Return the fields that the request contains."""
        return self.model_dump(exclude_unset=True)


class Shown(BaseModel):
    """An object as the API shows it, for the OpenAPI document."""
