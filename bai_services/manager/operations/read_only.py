"""Read-only maintenance: users can change nothing."""

from __future__ import annotations

from bai_services.core.accounts.roles import Role
from bai_services.core.errors import Unavailable
from bai_services.core.operations.maintenances import READ_ONLY, Maintenance, Mode
from bai_services.core.operations.periods import is_current
from bai_services.db.database import Database
from bai_services.db.operations.maintenances import MaintenanceStore

from ..clock import Clock
from ..loop import Loop

# Interval at which the periods are read, because another manager may change them.
TICK_SECONDS = 5.0
# Roles that can change data: superadmins, and components, so that running sessions continue. A
# request of the Hub for a user is checked with the role of the user.
WRITERS = (Role.SUPERADMIN, Role.HUB, Role.AGENT, Role.GATEWAY, Role.SESSION)


class ReadOnlyPeriods:
    """The planned and current periods of read-only maintenance."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._store = MaintenanceStore(database)
        self._clock = clock
        self._periods: list[Maintenance] = []
        self._loop = Loop("maintenance", self.refresh, TICK_SECONDS)

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()

    async def refresh(self) -> None:
        """Read the periods."""
        current = await self._store.current(self._clock())
        self._periods = [each for each in current if each.mode == Mode.READ_ONLY]

    def require_writable(self, role: Role) -> None:
        """Raise ``Unavailable`` if this role is read-only now because of maintenance."""
        if role in WRITERS or not self._periods:
            return
        now = self._clock()
        for each in self._periods:
            if is_current(each, now):
                end = f" until {each.ends_at.isoformat()}" if each.ends_at else ""
                raise Unavailable(
                    f"the installation is read-only{end}: {each.reason}",
                    maintenance=each.id,
                    reason=READ_ONLY,
                )
