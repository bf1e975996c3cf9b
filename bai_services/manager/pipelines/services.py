"""Build the services of pipelines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bai_services.core.accounts.roles import Role
from bai_services.db.pipelines.definitions import PipelineStore
from bai_services.db.pipelines.runs import PipelineRunStore

from ..accounts.callers import Callers
from ..context import ManagerContext
from ..folders.vfolders import VFolders
from ..scheduling.lease import Lease
from ..sessions.lifecycle import Lifecycle
from ..sessions.requests.options import Options
from ..sessions.sessions import Sessions
from .pipelines import Pipelines
from .runner import PipelineRunner
from .runs import PipelineRuns


@dataclass(frozen=True, slots=True)
class PipelineServices:
    """Pipelines, their runs, and the loop that runs them."""

    pipelines: Pipelines
    runs: PipelineRuns
    runner: PipelineRunner


def pipeline_services(
    context: ManagerContext,
    *,
    sessions: Sessions,
    options: Options,
    folders: VFolders,
    lifecycle: Lifecycle,
    callers: Callers,
    lease: Lease,
    require_writable: Callable[[Role], None],
) -> PipelineServices:
    """Build the services and pass them their dependencies."""
    store = PipelineRunStore(context.database)
    runner = PipelineRunner(context, store, sessions, callers, require_writable, lease=lease)
    lifecycle.listen(runner.session_changed)
    pipelines = Pipelines(context, PipelineStore(context.database), options, folders)
    return PipelineServices(
        pipelines=pipelines,
        runs=PipelineRuns(context, store, pipelines, runner.wake),
        runner=runner,
    )
