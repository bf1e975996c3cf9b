"""Options of resource groups as files and commands write them: one spelling for each meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bai_services.core.durations import parse_duration

FIELD = "scheduler_opts"


def spelled(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as the hub keeps them: spans of time in seconds, texts as keys.

    Raises
    ------
    InvalidRequest
        If a span of time is none.
    """
    kept = dict(options)
    if kept.get("backfill") is False:
        kept["backfill"] = "off"  # YAML takes the bare word for false
    if "pending_timeout" in kept:
        wait = kept["pending_timeout"]
        kept["pending_timeout"] = 0 if wait is None else parse_duration(wait, FIELD)
    return renamed(kept, lambda kind, key: str(key))


def weights_of(options: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the weights in options; nothing where they are not of the form that has any."""
    fair_share = (options or {}).get("fair_share")
    weights = fair_share.get("weights") if isinstance(fair_share, Mapping) else None
    return weights if isinstance(weights, Mapping) else {}


def renamed(options: Mapping[str, Any], named: Callable[[str, Any], str]) -> dict[str, Any]:
    """Return options with the keys of their weights called as ``named`` says.

    Two keys that would be one are left: the hub refuses them.
    """
    weights = dict(weights_of(options))
    for kind, of_kind in weights.items():
        if isinstance(of_kind, Mapping):
            called = {named(kind, key): weight for key, weight in of_kind.items()}
            weights[kind] = called if len(called) == len(of_kind) else of_kind
    if not weights:
        return dict(options)
    return {**options, "fair_share": {**options["fair_share"], "weights": weights}}
