"""Build the services of announcements and maintenance."""

from __future__ import annotations

from dataclasses import dataclass

from ..accounts.services import AccountServices
from ..context import ManagerContext
from .announcements import Announcements
from .maintenances import Maintenances


@dataclass(frozen=True, slots=True)
class OperationServices:
    """Services for announcements and maintenance."""

    announcements: Announcements
    maintenances: Maintenances


def operation_services(context: ManagerContext, accounts: AccountServices) -> OperationServices:
    """Build the services and pass them their dependencies."""
    return OperationServices(
        announcements=Announcements(context, accounts.domains, accounts.projects),
        maintenances=Maintenances(context),
    )
