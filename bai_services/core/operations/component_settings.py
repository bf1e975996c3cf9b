"""Settings that the Hub and agents report, without secrets and with limited length."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

MAX_SETTINGS = 200
MAX_CHARS = 500
_SECRET = re.compile(r"(token|secret|password|passphrase|key)(_file)?$")
# User name and password in a URL.
_USER_INFO = re.compile(r"://[^/\s\"']*@")


class ComponentKind(StrEnum):
    HUB = "hub"
    AGENT = "agent"


class SettingOrigin(StrEnum):
    """Where a setting comes from; ``file``: the configuration file or the command line."""

    DEFAULT = "default"
    ENVIRONMENT = "environment"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class ReportedSetting:
    """A setting in force in a component. ``value`` and ``default`` are None for a secret."""

    name: str
    value: str | None
    default: str | None
    origin: str


@dataclass(frozen=True, slots=True)
class ComponentSetting:
    """A reported setting; ``component`` is the id of an agent, or ``hub``."""

    id: str
    kind: str
    component: str
    name: str
    value: str | None
    default: str | None
    origin: str


def reported(name: str, value: Any, default: Any, origin: SettingOrigin) -> ReportedSetting:
    """Return a setting as it is shown to administrators; ``name`` is ``CLASS.OPTION``."""
    if _SECRET.search(name):
        return ReportedSetting(name, None, None, origin)
    return ReportedSetting(name, setting_text(value), setting_text(default), origin)


def setting_text(value: Any) -> str:
    """Return a value as text of at most ``MAX_CHARS`` characters.

    A map in a list, for example a sign-in provider, is reduced to its name: the other entries may
    be secrets. User names and passwords in URLs are removed.
    """
    if value is None:
        return ""
    if isinstance(value, type):
        value = f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, set | frozenset):
        value = sorted(value, key=str)
    if isinstance(value, list | tuple):
        value = [_name_of(each) for each in value]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    # PostgreSQL can store neither NUL nor unpaired surrogates.
    text = text.replace("\x00", "").encode("utf-8", "replace").decode("utf-8")
    text = _USER_INFO.sub("://…@", text)
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"


def _name_of(each: Any) -> Any:
    return str(each.get("name", "?")) if isinstance(each, Mapping) else each
