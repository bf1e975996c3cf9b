"""Normalize the scheduler options of resource groups as given in files and on the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bai_services.core.durations import parse_duration

FIELD = "scheduler_opts"
_DURATIONS = {
    "preemption": {"min_runtime", "grace"},
    "lost_agents": {"requeue_after", "wait"},
}


def normalize(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as the hub stores them: durations in seconds, keys of weights as strings.

    Raises
    ------
    InvalidRequest
        If a duration is invalid.
    """
    normalized = dict(options)
    if normalized.get("backfill") is False:
        normalized["backfill"] = "off"  # YAML parses an unquoted off as false
    if "pending_timeout" in normalized:
        timeout = normalized["pending_timeout"]
        normalized["pending_timeout"] = 0 if timeout is None else parse_duration(timeout, FIELD)
    for option, durations in _DURATIONS.items():
        if isinstance(normalized.get(option), Mapping):
            fields = normalized[option] = dict(normalized[option])
            for name in durations & fields.keys():
                fields[name] = parse_duration(fields[name], FIELD)
    return rename_weight_keys(normalized, lambda kind, key: str(key))


def weights_of(options: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the fair-share weights in options; empty if they are missing."""
    fair_share = (options or {}).get("fair_share")
    weights = fair_share.get("weights") if isinstance(fair_share, Mapping) else None
    return weights if isinstance(weights, Mapping) else {}


def rename_weight_keys(
    options: Mapping[str, Any], rename: Callable[[str, Any], str]
) -> dict[str, Any]:
    """Return options with the key of each weight replaced by ``rename(kind, key)``.

    If two keys of a kind would become equal, the keys of that kind are not renamed; the hub then
    rejects the options.
    """
    weights = dict(weights_of(options))
    for kind, of_kind in weights.items():
        if isinstance(of_kind, Mapping):
            renamed = {rename(kind, key): weight for key, weight in of_kind.items()}
            weights[kind] = renamed if len(renamed) == len(of_kind) else of_kind
    if not weights:
        return dict(options)
    return {**options, "fair_share": {**options["fair_share"], "weights": weights}}
