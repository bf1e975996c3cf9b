"""JSON for script elements of HTML pages."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from markupsafe import Markup


def script_json(value: Any, encode: Callable[[Any], Any] | None = None) -> Markup:
    """Return JSON that is safe inside a script element: it cannot close or open an element.

    ``encode`` converts values that ``json`` cannot serialize.

    Raises
    ------
    TypeError
        If ``json`` cannot serialize a part of ``value``, and ``encode`` is not given.
    """
    text = json.dumps(value, ensure_ascii=False, default=encode)
    for character, escaped in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(character, escaped)
    return Markup(text)
