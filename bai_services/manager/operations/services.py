"""Build the services of announcements and maintenance."""

from __future__ import annotations

from dataclasses import dataclass

from ..accounts.services import AccountServices
from ..context import ManagerContext
from .announcements import Announcements


@dataclass(frozen=True, slots=True)
class OperationServices:
    """Services for announcements and maintenance."""

    announcements: Announcements


def operation_services(context: ManagerContext, accounts: AccountServices) -> OperationServices:
    """Build the services and pass them their dependencies."""
    return OperationServices(
        announcements=Announcements(context, accounts.domains, accounts.projects)
    )
