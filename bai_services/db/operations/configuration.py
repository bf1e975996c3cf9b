"""Store of the settings that administrators have changed."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from bai_services.core.audit import AuditEntry
from bai_services.core.operations.configuration import Override

from ..audit import record
from ..database import Database
from ..integrity import insert_ignoring
from ..records import records
from ..tables.operations import setting_overrides

_variable = setting_overrides.c.variable


class ConfigurationStore:
    """Reads and writes stored settings of the manager. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def all(self) -> Sequence[Override]:
        async with self._db.read() as tx:
            return records(Override, await tx.execute(sa.select(setting_overrides)))

    async def set(self, override: Override, audit: AuditEntry) -> None:
        values = {name: getattr(override, name) for name in Override.__dataclass_fields__}
        async with self._db.write() as tx:
            # Insert the row if it is missing, and then set its values, because a concurrent request
            # may have inserted it with other values.
            await tx.execute(insert_ignoring(tx, setting_overrides).values(values))
            await tx.execute(
                sa.update(setting_overrides).where(_variable == override.variable).values(values)
            )
            await record(tx, audit)

    async def remove(self, variable: str, audit: AuditEntry) -> None:
        """Remove the stored value of a setting; if no value is stored, write no audit entry."""
        async with self._db.write() as tx:
            removed = await tx.execute(sa.delete(setting_overrides).where(_variable == variable))
            if removed.rowcount:
                await record(tx, audit)
