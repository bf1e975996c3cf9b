"""`/system`: facts about the installation, for administrators."""

from __future__ import annotations

from datetime import datetime

from bai_services.core.operations import system as records

from ..base import APIHandler, operation
from ..fields import ResponseModel


class Package(ResponseModel):
    name: str
    version: str
    licence: str


class SystemInfo(ResponseModel):
    """``sessions`` and ``agents``: numbers by status. ``revision``: the revision of the database
    schema. ``packages``: Python packages. ``bundled``: JavaScript packages in the web UI and the
    JupyterLab extension.
    """

    version: str
    python: str
    at: datetime
    health: str
    has_database: bool
    has_hub: bool
    is_standby: bool
    database: str
    database_version: str
    database_bytes: int
    revision: str
    sessions: dict[str, int]
    agents: dict[str, int]
    users: int
    audit_entries: int
    packages: list[Package]
    bundled: list[Package]


class SystemHandler(APIHandler):
    @operation(
        "Read versions, licenses, health, database size and numbers of sessions and agents",
        tag="health",
        returns=SystemInfo,
        is_expensive=True,
    )
    async def get(self) -> records.SystemInfo:
        return await self.manager.system.get(self.caller)


ROUTES = [("/system", SystemHandler)]
