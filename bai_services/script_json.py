"""JSON for script elements of HTML pages."""

from __future__ import annotations

import json
from typing import Any

from markupsafe import Markup


def script_json(value: Any) -> Markup:
    """Return JSON that is safe inside a script element: it cannot close or open an element."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    for character, escaped in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(character, escaped)
    return Markup(text)
