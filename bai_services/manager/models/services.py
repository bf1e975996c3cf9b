"""Build the services of the model store."""

from __future__ import annotations

from dataclasses import dataclass

from bai_services.db.models.cards import CardStore
from bai_services.db.models.imports import ModelImportStore

from ..accounts.projects import Projects
from ..cluster.presets import Presets
from ..context import ManagerContext
from ..folders.services import FolderServices
from ..scheduling.lease import Lease
from ..serving.endpoints import Endpoints
from ..sessions.requests.options import Options
from ..settings import Settings
from .hub_client import HubClient
from .import_runner import ImportRunner
from .imports import Imports
from .models import Models
from .refresher import CardRefresher


@dataclass(frozen=True, slots=True)
class ModelServices:
    """Models, the loop that refreshes their cards, imports, and the loop that runs them."""

    models: Models
    refresher: CardRefresher
    imports: Imports
    runner: ImportRunner

    def start(self) -> None:
        self.refresher.start()
        self.runner.start()

    async def stop(self) -> None:
        """Interrupt running imports, and stop the loops."""
        await self.runner.stop()
        await self.refresher.stop()


def model_services(
    context: ManagerContext,
    settings: Settings,
    *,
    projects: Projects,
    folders: FolderServices,
    endpoints: Endpoints,
    options: Options,
    presets: Presets,
    lease: Lease,
) -> ModelServices:
    """Build the services and pass them their dependencies."""
    cards, imports = CardStore(context.database), ModelImportStore(context.database)
    refresher = CardRefresher(context, cards, folders.storage_hosts, folders.quotas, lease)
    folders.changes.listen(refresher.folder_changed)
    runner = ImportRunner(
        context,
        imports,
        HubClient(settings.model_hub_url, settings.model_hub_token, settings.import_reach),
        settings.import_max_bytes,
        hosts=folders.storage_hosts,
        quotas=folders.quotas,
        tasks=folders.tasks,
        changes=folders.changes,
        lease=lease,
    )
    return ModelServices(
        models=Models(
            cards,
            refresher,
            folders=folders.vfolders,
            endpoints=endpoints,
            options=options,
            presets=presets,
        ),
        refresher=refresher,
        imports=Imports(
            context,
            imports,
            settings.import_reach,
            projects=projects,
            folders=folders.vfolders,
            wake=runner.wake,
        ),
        runner=runner,
    )
