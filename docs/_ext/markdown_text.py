"""Markdown escaping for generated pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_SPECIAL = re.compile(r"([\\*_<>\[\]|#$])")


def escape(text: str) -> str:
    """Join the lines of ``text`` and escape it for Markdown; in code spans, escape only ``|``."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(
        part.replace("|", r"\|") if part.startswith("`") else _SPECIAL.sub(r"\\\1", part)
        for part in parts
    )


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table, or an empty list if there are no rows."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    if not lines:
        return []
    return ["", f"| {' | '.join(header)} |", f"|{'---|' * len(header)}", *lines, ""]
