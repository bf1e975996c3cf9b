"""Settings in force in the Hub and in agents."""

from __future__ import annotations

from collections.abc import Sequence

from bai_services.core.accounts.roles import Caller
from bai_services.core.listing import ListQuery, Page
from bai_services.core.operations.component_settings import ComponentSetting, ReportedSetting
from bai_services.db.operations.component_settings import ComponentSettingStore

from ..accounts import authorizer
from ..context import ManagerContext


class ComponentSettings:
    """Returns reported settings to superadmins and monitors; agents report them in heartbeats."""

    def __init__(self, context: ManagerContext) -> None:
        self._store = ComponentSettingStore(context.database)

    async def page(self, caller: Caller, query: ListQuery) -> Page[ComponentSetting]:
        authorizer.require(caller, "configuration.read")
        return await self._store.page(query)

    async def report_hub(self, caller: Caller, settings: Sequence[ReportedSetting]) -> None:
        """Replace the settings of the Hub."""
        authorizer.require(caller, "configuration.report")
        await self._store.replace_hub(settings)
