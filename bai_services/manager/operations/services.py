"""Build the services of announcements, maintenance and settings."""

from __future__ import annotations

from dataclasses import dataclass

from ..accounts.services import AccountServices
from ..context import ManagerContext
from ..settings import Settings
from .announcements import Announcements
from .component_settings import ComponentSettings
from .configuration import Configuration
from .maintenances import Maintenances


@dataclass(frozen=True, slots=True)
class OperationServices:
    """Services for announcements, maintenance and settings."""

    announcements: Announcements
    maintenances: Maintenances
    configuration: Configuration
    component_settings: ComponentSettings


def operation_services(
    context: ManagerContext, settings: Settings, accounts: AccountServices
) -> OperationServices:
    """Build the services and pass them their dependencies."""
    return OperationServices(
        announcements=Announcements(context, accounts.domains, accounts.projects),
        maintenances=Maintenances(context),
        configuration=Configuration(context, settings),
        component_settings=ComponentSettings(context),
    )
