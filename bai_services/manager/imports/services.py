"""Build the services of imports into folders."""

from __future__ import annotations

from dataclasses import dataclass

from bai_services.db.imports.folder_imports import FolderImportStore

from ..accounts.callers import Callers
from ..accounts.keypair_secrets import KeypairSecrets
from ..context import ManagerContext
from ..folders.services import FolderServices
from ..models.hub_client import HubClient
from ..scheduling.lease import Lease
from ..settings import Settings
from .imports import FolderImports
from .recipes import Recipes
from .runner import FolderImportRunner


@dataclass(frozen=True, slots=True)
class ImportServices:
    """Imports into folders, and the loop that runs them."""

    imports: FolderImports
    runner: FolderImportRunner
    recipes: Recipes


def import_services(
    context: ManagerContext,
    settings: Settings,
    *,
    callers: Callers,
    folders: FolderServices,
    lease: Lease,
) -> ImportServices:
    """Build the services and pass them their dependencies."""
    store, cipher = FolderImportStore(context.database), KeypairSecrets(settings.key)
    max_bytes = min(settings.import_max_bytes, settings.max_file_bytes)
    client = HubClient("", "", settings.import_reach)
    runner = FolderImportRunner(
        context,
        store,
        client,
        max_bytes,
        cipher,
        callers=callers,
        folders=folders.vfolders,
        files=folders.files,
        quotas=folders.quotas,
        lease=lease,
    )
    return ImportServices(
        imports=FolderImports(
            context,
            store,
            settings.import_reach,
            max_bytes,
            cipher,
            folders=folders.vfolders,
            files=folders.files,
            wake=runner.wake,
        ),
        runner=runner,
        recipes=Recipes(
            settings.import_reach,
            client,
            folders.files,
            builds_recipes=settings.builds_recipes,
        ),
    )
