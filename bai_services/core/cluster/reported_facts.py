"""Values in reports of agents, reduced to values that can be stored and sent as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

# Deeper values become null. Agents send at most 5 levels.
MAX_DEPTH = 16
# Larger integers become null: databases and browsers cannot represent them.
MAX_INTEGER = 2**63 - 1


def storable(value: Any, depth: int = MAX_DEPTH) -> Any:
    """Return a JSON value without numbers that JSON or 64 bits cannot represent, and without NUL
    characters, which PostgreSQL rejects.

    Such a number, and each object or list below ``depth`` levels, becomes None.
    """
    if isinstance(value, str):
        return value.replace("\0", "") if "\0" in value else value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        return value if -MAX_INTEGER <= value <= MAX_INTEGER else None
    if isinstance(value, Mapping):
        return storable_facts(value, depth) if depth > 0 else None
    if isinstance(value, list):
        return [storable(item, depth - 1) for item in value] if depth > 0 else None
    return None


def storable_facts(facts: Mapping[str, Any], depth: int = MAX_DEPTH) -> dict[str, Any]:
    """Return facts with names without NUL characters and with ``storable`` values."""
    return {name.replace("\0", ""): storable(value, depth - 1) for name, value in facts.items()}


def kernel_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``storable_facts`` of a kernel (usage or injection). Devices that are not objects, and
    enforcement levels that are not texts, are omitted.
    """
    stored = storable_facts(facts)
    if "devices" in stored:
        listed = stored["devices"] if isinstance(stored["devices"], list) else []
        stored["devices"] = [each for each in listed if isinstance(each, dict)]
        for device in stored["devices"]:
            for name in ("id", "family"):
                if name in device:
                    device[name] = str(device[name])
    if "enforcement" in stored:
        levels = stored["enforcement"] if isinstance(stored["enforcement"], dict) else {}
        stored["enforcement"] = {k: text for k, text in levels.items() if isinstance(text, str)}
    return stored
