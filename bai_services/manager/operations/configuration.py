"""Settings of the manager with their origin; administrators can set some in the database.

A value in the database takes precedence over the environment, from the next start of the manager.
"""

from __future__ import annotations

import logging
from dataclasses import fields, replace
from typing import Any

from bai_services.core.accounts.roles import Caller
from bai_services.core.audit import AuditEntry
from bai_services.core.errors import Forbidden, InvalidRequest, NotFound
from bai_services.core.listing import ListQuery, Page, page_of
from bai_services.core.operations.configuration import (
    DEFINITIONS,
    SETTINGS,
    ChangeableSetting,
    Kind,
    Origin,
    Override,
    SettingDefinition,
    SettingState,
)
from bai_services.core.user_input import shown
from bai_services.db.database import Database
from bai_services.db.operations.configuration import ConfigurationStore

from ..accounts import authorizer
from ..context import ManagerContext
from ..settings import Settings

log = logging.getLogger(__name__)

_DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(Settings)}
_FILTERS = ("name", "kind", "origin", "is_changeable", "needs_restart")


async def with_overrides(settings: Settings, database: Database) -> Settings:
    """Return the settings with the values that administrators have set in the database."""
    values: dict[str, Any] = {}
    for override in await ConfigurationStore(database).all():
        definition = DEFINITIONS.get(override.variable)
        if not isinstance(definition, ChangeableSetting):
            continue
        try:
            values[definition.field] = definition.parse(override.value)
        except InvalidRequest as error:
            # Another version may have accepted this value. It must not prevent the manager from
            # starting.
            log.error("a setting in the database is ignored: %s", error.message)
    return replace(settings, overridden=frozenset(values), **values)


class Configuration:
    """Lists all settings and stores values in the database.

    Superadmins may set values, monitors may read the settings.
    """

    def __init__(self, context: ManagerContext, settings: Settings) -> None:
        self._store = ConfigurationStore(context.database)
        self._clock = context.clock
        self._audit = context.audit
        self._settings = settings

    async def page(self, caller: Caller, query: ListQuery) -> Page[SettingState]:
        """Return the settings, changeable settings first."""
        authorizer.require(caller, "configuration.read")
        stored = {override.variable: override for override in await self._store.all()}
        states = [self._state(each, stored.get(each.variable)) for each in SETTINGS]
        return page_of(states, query, _FILTERS)

    async def set(self, caller: Caller, variable: str, text: str) -> SettingState:
        """Set a value in the database; it takes effect after a restart.

        Raises
        ------
        NotFound
            If there is no such setting.
        Forbidden
            If the setting cannot be changed here.
        InvalidRequest
            If the value is not valid.
        """
        setting = _changeable(caller, variable)
        value = _text(setting.parse(text))
        override = Override(variable, value, self._clock(), caller.username)
        await self._store.set(override, await self._entry(caller, setting, value))
        return self._state(setting, override)

    async def unset(self, caller: Caller, variable: str) -> None:
        """Remove a value from the database; it remains in force until the manager is restarted.

        Raises
        ------
        NotFound
            If there is no such setting.
        Forbidden
            If the setting cannot be changed here.
        """
        setting = _changeable(caller, variable)
        await self._store.remove(variable, await self._entry(caller, setting, None))

    async def _entry(
        self, caller: Caller, setting: ChangeableSetting, after: str | None
    ) -> AuditEntry:
        stored = {override.variable: override.value for override in await self._store.all()}
        before = stored.get(setting.variable)
        details = self._audit.changes({"value": before}, {"value": after})
        return self._audit.entry(
            caller,
            "configuration.update",
            setting.variable,
            name=setting.variable,
            **details,
        )

    def _state(self, setting: SettingDefinition, override: Override | None) -> SettingState:
        given = self._settings.configured
        origin = Origin.ENVIRONMENT if setting.variable in given else Origin.DEFAULT
        value = None if setting.kind is Kind.SECRET else given.get(setting.variable)
        default, minimum = None, None
        stored = None if override is None else override.value
        if isinstance(setting, ChangeableSetting):
            value = _text(getattr(self._settings, setting.field))
            default = _text(_DEFAULTS[setting.field])
            minimum = setting.minimum if setting.kind is Kind.NUMBER else None
            if setting.field in self._settings.overridden:
                origin = Origin.DATABASE
        is_removed = stored is None and origin is Origin.DATABASE
        return SettingState(
            name=setting.variable,
            kind=setting.kind,
            value=value,
            default=default,
            origin=origin,
            minimum=minimum,
            stored=stored,
            changed_at=None if override is None else override.changed_at,
            changed_by=None if override is None else override.changed_by,
            is_changeable=isinstance(setting, ChangeableSetting),
            needs_restart=is_removed or stored not in (None, value),
        )


def _changeable(caller: Caller, variable: str) -> ChangeableSetting:
    authorizer.require(caller, "configuration.write")
    setting = DEFINITIONS.get(variable)
    if setting is None:
        raise NotFound(f"there is no setting {shown(variable)!r}")
    if not isinstance(setting, ChangeableSetting):
        raise Forbidden(
            f"{variable} can only be changed in the environment of the manager",
            action="configuration.write",
        )
    return setting


def _text(value: int | bool) -> str:
    return str(int(value))
