"""Settings of tasks: fields of session requests, inherited from the defaults of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MAPS = ("environ", "resources", "secrets")


def merged(defaults: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a task: maps are merged, and mounts are added to the defaults."""
    settings = {**defaults, **own}
    for name in _MAPS:
        if name in settings:
            settings[name] = {**defaults.get(name, {}), **own.get(name, {})}
    mounts = [*defaults.get("mounts", ()), *own.get("mounts", ())]
    if mounts:
        settings["mounts"] = list({mount["vfolder"]: mount for mount in mounts}.values())
    return settings
