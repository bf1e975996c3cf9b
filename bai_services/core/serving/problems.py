"""Problems of replicas for users who may not read the messages of replicas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..coded_text import CodedText, TextTemplate

# Messages can name folders and images, which only the owner and administrators may see.
_BRIEF = {
    TextTemplate.REPLICA_REFUSED.code: TextTemplate.REPLICA_REFUSED_BRIEF,
    TextTemplate.REPLICA_ENDED.code: TextTemplate.REPLICA_ENDED_BRIEF,
    TextTemplate.REVISION_GIVEN_UP.code: TextTemplate.REVISION_GIVEN_UP_BRIEF,
}


def brief(text: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the version of a stored text for users who may not read its message."""
    template = None if text is None else _BRIEF.get(text["code"])
    if text is None or template is None:
        return text
    values = {name: value for name, value in text["values"].items() if name != "message"}
    return CodedText(template.code, values).as_json()
