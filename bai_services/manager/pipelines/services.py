"""Build the services of pipelines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bai_services.core.accounts.roles import Role
from bai_services.db.cluster.images import ImageStore
from bai_services.db.pipelines.definitions import PipelineStore
from bai_services.db.pipelines.runs import PipelineRunStore
from bai_services.db.pipelines.schedules import PipelineScheduleStore
from bai_services.db.pipelines.templates import PipelineTemplateStore
from bai_services.db.pipelines.triggers import PipelineTriggerStore

from ..accounts.callers import Callers
from ..accounts.keypair_secrets import KeypairSecrets
from ..accounts.projects import Projects
from ..context import ManagerContext
from ..folders.files import Files
from ..folders.vfolders import VFolders
from ..scheduling.lease import Lease
from ..sessions.lifecycle import Lifecycle
from ..sessions.requests.options import Options
from ..sessions.sessions import Sessions
from ..sessions.setups import SessionSetups
from .pipelines import Pipelines
from .results import PipelineRunResults
from .runner import PipelineRunner
from .runs import PipelineRuns
from .schedule_runner import PipelineScheduleRunner
from .schedules import PipelineSchedules
from .templates import PipelineTemplates
from .trigger_runner import PipelineTriggerRunner
from .triggers import PipelineTriggers


@dataclass(frozen=True, slots=True)
class PipelineServices:
    """Pipelines, their runs, schedules and triggers, and the loops that run them."""

    pipelines: Pipelines
    runs: PipelineRuns
    results: PipelineRunResults
    schedules: PipelineSchedules
    triggers: PipelineTriggers
    templates: PipelineTemplates
    runner: PipelineRunner
    schedule_runner: PipelineScheduleRunner
    trigger_runner: PipelineTriggerRunner

    def start(self) -> None:
        self.runner.start()
        self.schedule_runner.start()
        self.trigger_runner.start()

    async def stop(self) -> None:
        await self.trigger_runner.stop()
        await self.schedule_runner.stop()
        await self.runner.stop()


def pipeline_services(
    context: ManagerContext,
    *,
    sessions: Sessions,
    setups: SessionSetups,
    options: Options,
    folders: VFolders,
    files: Files,
    lifecycle: Lifecycle,
    callers: Callers,
    projects: Projects,
    lease: Lease,
    encryption: KeypairSecrets,
    require_writable: Callable[[Role], None],
) -> PipelineServices:
    """Build the services and pass them their dependencies."""
    store = PipelineRunStore(context.database)
    runner = PipelineRunner(
        context, store, sessions, setups, callers, require_writable, lease=lease
    )
    lifecycle.listen(runner.session_changed)
    pipelines = Pipelines(
        context,
        PipelineStore(context.database),
        options=options,
        folders=folders,
        projects=projects,
    )
    runs = PipelineRuns(context, store, pipelines, runner.wake)
    schedules = PipelineScheduleStore(context.database)
    trigger_store = PipelineTriggerStore(context.database)
    triggers = PipelineTriggers(
        context,
        trigger_store,
        pipelines,
        runs,
        files,
        callers=callers,
        encryption=encryption,
        require_writable=require_writable,
    )
    return PipelineServices(
        pipelines=pipelines,
        runs=runs,
        results=PipelineRunResults(runs, store, ImageStore(context.database), files, sessions),
        schedules=PipelineSchedules(context, schedules, pipelines),
        triggers=triggers,
        templates=PipelineTemplates(context, PipelineTemplateStore(context.database), pipelines),
        runner=runner,
        schedule_runner=PipelineScheduleRunner(
            context, schedules, runs, callers, require_writable, lease=lease
        ),
        trigger_runner=PipelineTriggerRunner(
            trigger_store, triggers, pipelines, callers, lease=lease
        ),
    )
