"""Build the services for agents, images, presets and resource groups."""

from __future__ import annotations

from dataclasses import dataclass

from bai_services.db.cluster.registries import RegistryStore
from bai_services.db.scheduling.advance_reservations import AdvanceReservationStore

from ..accounts.keypair_secrets import KeypairSecrets
from ..accounts.projects import Projects
from ..context import ManagerContext
from ..folders.storage_hosts import StorageHosts
from ..scheduling.services import SchedulingServices
from ..sessions.services import SessionServices
from ..settings import Settings
from .agents import Agents, WorkReports
from .custom_images import COMMIT, CustomImages
from .doctor import CHECK, ClusterDoctor
from .heartbeat_times import HeartbeatTimes
from .image_prunes import PRUNE, ImagePrunes
from .image_pulls import PULL, ImagePulls
from .image_sboms import SBOM, ImageSboms
from .images import ImageAliases, Images
from .joining import AgentJoins
from .presets import Presets
from .provisioning import Provisioning
from .registries import ImageRegistries
from .registry_scans import RegistryScans
from .replays import GroupReplays
from .resource_groups import ResourceGroups
from .schedules import Schedules
from .swarm import Swarm


@dataclass(frozen=True, slots=True)
class ClusterServices:
    """Services for agents, images, presets, resource groups, their schedules and replays."""

    agents: Agents
    doctor: ClusterDoctor
    joins: AgentJoins
    swarm: Swarm
    images: Images
    image_aliases: ImageAliases
    image_prunes: ImagePrunes
    image_sboms: ImageSboms
    image_pulls: ImagePulls
    custom_images: CustomImages
    registries: ImageRegistries
    registry_scans: RegistryScans
    presets: Presets
    provisioning: Provisioning
    resource_groups: ResourceGroups
    schedules: Schedules
    replays: GroupReplays


def cluster_services(
    context: ManagerContext,
    settings: Settings,
    sessions: SessionServices,
    scheduling: SchedulingServices,
    projects: Projects,
    *,
    times: HeartbeatTimes,
    hosts: StorageHosts,
) -> ClusterServices:
    """Build the services and pass them their dependencies."""
    resource_groups = ResourceGroups(context, has_provisioning=bool(settings.provisioning_command))
    image_pulls = ImagePulls(context, resource_groups, sessions.kernels.wake, sessions.pull_secrets)
    sessions.kernels.add_source(image_pulls)
    image_prunes = ImagePrunes(context, resource_groups, sessions.kernels.wake)
    sessions.kernels.add_source(image_prunes)
    images = Images(context)
    image_sboms = ImageSboms(context, images, sessions.kernels.wake)
    sessions.kernels.add_source(image_sboms)
    swarm = Swarm(settings.swarm_host)
    doctor = ClusterDoctor(context, settings, swarm, hosts, sessions.kernels.wake)
    sessions.kernels.add_source(doctor)
    joins = AgentJoins(context, settings, swarm)
    registries, cipher = RegistryStore(context.database), KeypairSecrets(settings.key)
    registry_scans = RegistryScans(
        context, registries, cipher, settings.registry_reach, scheduling.lease
    )
    custom_images = CustomImages(
        context,
        sessions.sessions,
        registries,
        sessions.pull_secrets,
        registry=settings.commit_registry,
        max_bytes=settings.commit_max_bytes,
        builds_recipes=settings.builds_recipes,
        build_timeout_seconds=settings.build_timeout_seconds,
        wake=sessions.kernels.wake,
    )
    sessions.kernels.add_source(custom_images)
    reports: dict[str, WorkReports] = {
        PULL: image_pulls,
        PRUNE: image_prunes,
        SBOM: image_sboms,
        CHECK: doctor,
        COMMIT: custom_images,
    }
    return ClusterServices(
        agents=Agents(context, settings, sessions.kernels, reports, joins, times, hosts),
        custom_images=custom_images,
        doctor=doctor,
        joins=joins,
        swarm=swarm,
        images=images,
        image_aliases=ImageAliases(context),
        image_prunes=image_prunes,
        image_sboms=image_sboms,
        image_pulls=image_pulls,
        registries=ImageRegistries(
            context,
            registries,
            cipher,
            settings.registry_reach,
            projects=projects,
            secrets=sessions.pull_secrets,
            wake=registry_scans.wake,
        ),
        registry_scans=registry_scans,
        presets=Presets(context, sessions.options),
        provisioning=Provisioning(context, settings, joins, scheduling.scheduler, scheduling.lease),
        resource_groups=resource_groups,
        schedules=Schedules(
            resource_groups,
            scheduling.scheduler,
            sessions.sessions,
            AdvanceReservationStore(context.database),
            context.clock,
        ),
        replays=GroupReplays(context, resource_groups, scheduling.jit_warmup),
    )
