"""The settings in force in configurable objects, which the Hub and agents report to the manager."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from traitlets import TraitType
from traitlets.config import Config, Configurable

from bai_services.core.operations.component_settings import (
    MAX_SETTINGS,
    ReportedSetting,
    SettingOrigin,
    reported,
)


def settings_of(
    configurables: Sequence[Configurable], environment: Config | None = None
) -> list[ReportedSetting]:
    """Return the settings of bai-hub in some objects, at most ``MAX_SETTINGS``.

    ``environment`` is the part of their configuration that was read from environment variables.
    """
    found = [
        _setting(each, name, trait, environment or Config())
        for each in configurables
        for name, trait in sorted(_own_traits(each))
    ]
    return found[:MAX_SETTINGS]


def options_of(configurable: Configurable, names: Sequence[str]) -> list[ReportedSetting]:
    """Return some settings of an object that is not part of bai-hub."""
    traits = configurable.traits(config=True)
    return [_setting(configurable, name, traits[name], Config()) for name in names]


def as_json(settings: Sequence[ReportedSetting]) -> list[dict[str, str | None]]:
    return [
        {
            "name": each.name,
            "value": each.value,
            "default": each.default,
            "origin": str(each.origin),
        }
        for each in settings
    ]


def _own_traits(configurable: Configurable) -> Iterator[tuple[str, TraitType[Any, Any]]]:
    """Yield the configurable traits that bai-hub defines, without those of its base classes."""
    found: dict[str, TraitType[Any, Any]] = {}
    for cls in type(configurable).__mro__:
        if cls.__module__.startswith("bai_") and issubclass(cls, Configurable):
            found = {**cls.class_own_traits(config=True), **found}
    yield from found.items()


def _setting(
    configurable: Configurable, name: str, trait: TraitType[Any, Any], environment: Config
) -> ReportedSetting:
    value, default = getattr(configurable, name), trait.default()
    given = _given(configurable, configurable.config, name)
    if given is not None:
        is_variable = given == _given(configurable, environment, name)
        origin = SettingOrigin.ENVIRONMENT if is_variable else SettingOrigin.FILE
    else:
        # If a computed default equals the value of an environment variable, assume that it comes
        # from the variable.
        is_variable = value != default and str(value) in _variables()
        origin = SettingOrigin.ENVIRONMENT if is_variable else SettingOrigin.DEFAULT
        default = default if is_variable else value
    return reported(f"{type(configurable).__name__}.{name}", value, default, origin)


def _variables() -> set[str]:
    """Return the values of bai-hub's environment variables."""
    return {value for name, value in os.environ.items() if name.startswith("BAI_")}


def _given(configurable: Configurable, config: Mapping[str, Any], name: str) -> Any:
    """Return the configured value of a trait; None if it is not configured."""
    for section in reversed(configurable.section_names()):
        if section in config and name in config[section]:
            return config[section][name]
    return None
