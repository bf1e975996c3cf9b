"""Read values from a runtime's metrics and from results of Prometheus queries."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_PAGE_BYTES = 1024 * 1024
MAX_LINE_CHARS = 4096
MAX_ANSWER_BYTES = 64 * 1024
# Maximum load; higher loads are ignored, because no rule has a target of this size.
MAX_VALUE = 1e12
METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,199}")
_COUNTER_SUFFIXES = ("_total", "_count", "_sum")
# The value follows the labels; label values are quoted and may contain braces.
_SAMPLE = re.compile(r"(?:\{.*\})?[ \t]+(\S+)(?:[ \t]+-?[0-9]+)?[ \t]*")


def read_metric(page: str, name: str) -> float | None:
    """Return the sum of a metric's series in Prometheus's text format; None without a series.

    Lines that are not valid, and values that are not finite or out of bounds, are ignored.
    """
    total: float | None = None
    for line in page.splitlines():
        if not line.startswith(name) or len(line) > MAX_LINE_CHARS:
            continue
        found = _SAMPLE.fullmatch(line, len(name))
        value = None if found is None else _number(found[1])
        if value is not None:
            total = (total or 0.0) + value
    return total


def is_counter(name: str) -> bool:
    """Return whether a metric is a counter; the load is then its rate."""
    return name.endswith(_COUNTER_SUFFIXES)


@dataclass(frozen=True, slots=True)
class MetricReading:
    """A reading of the metric of one replica, with its time by the monotonic clock."""

    seconds: float
    value: float

    def load_since(self, name: str, before: MetricReading | None) -> float | None:
        """Return the value, or for a counter the rate since ``before``; None if unknown.

        The rate of a counter that has decreased (after a restart) is unknown.
        """
        if not is_counter(name):
            return self.value
        if before is None or self.seconds <= before.seconds or self.value < before.value:
            return None
        return (self.value - before.value) / (self.seconds - before.seconds)


def read_query_answer(content: bytes) -> float:
    """Return the number in the response of Prometheus to an instant query.

    Raises
    ------
    ValueError
        If the response is an error or not exactly one number. The message is for users.
    """
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError("the answer is not JSON") from None
    if not isinstance(answer, Mapping) or answer.get("status") != "success":
        kind = answer.get("errorType") if isinstance(answer, Mapping) else None
        raise ValueError(kind[:40] if isinstance(kind, str) and kind else "no success")
    value = _number(_single_value(answer.get("data")))
    if value is None:
        raise ValueError("the result is not a number of at least 0")
    return value


def _single_value(data: Any) -> Any:
    """Return the value of a scalar, or of a vector with one element."""
    if not isinstance(data, Mapping) or data.get("resultType") not in ("scalar", "vector"):
        raise ValueError("the result is neither a scalar nor a vector")
    result = data.get("result")
    if data["resultType"] == "vector":
        if not isinstance(result, list) or len(result) != 1:
            count = len(result) if isinstance(result, list) else 0
            raise ValueError(f"the result has {count} series instead of one")
        result = result[0].get("value") if isinstance(result[0], Mapping) else None
    return result[1] if isinstance(result, list) and len(result) == 2 else None


def _number(text: Any) -> float | None:
    try:
        value = float(text)
    except (TypeError, ValueError, OverflowError):
        return None
    return value if math.isfinite(value) and 0 <= value <= MAX_VALUE else None
