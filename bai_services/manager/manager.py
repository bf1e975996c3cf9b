"""Composition of the manager."""

from __future__ import annotations

from bai_services.db.database import Database
from bai_services.db.scheduling.allocations import AllocationStore

from .accounts.callers import Callers
from .accounts.domains import Domains
from .accounts.keypair_secrets import KeypairSecrets
from .accounts.keypairs import Keypairs
from .accounts.lockouts import Lockouts
from .accounts.me import Me
from .accounts.passwords import Passwords
from .accounts.policies import Policies
from .accounts.projects import Projects
from .accounts.sign_in import SignIns
from .accounts.sign_outs import SignOuts, TokenEndings
from .accounts.ssh_keys import SshKeys
from .accounts.users import Users
from .apps.shares import AppShares
from .audit import Audit
from .clock import Clock, utcnow
from .cluster.agents import Agents
from .cluster.images import ImageAliases, Images
from .cluster.presets import Presets
from .cluster.resource_groups import ResourceGroups
from .context import ManagerContext
from .drain import Drain
from .folders.files import Files
from .folders.grants import Grants
from .folders.invitations import Invitations
from .folders.mounts import Mounts
from .folders.quotas import Quotas
from .folders.storage_hosts import StorageHosts
from .folders.tasks import VFolderTasks
from .folders.uploads import Uploads
from .folders.vfolders import VFolders
from .health import HealthCheck
from .hub.client import Hub
from .hub.session_tokens import SessionTokens
from .metrics import Metrics, Monitoring
from .scheduling.counter_audit import CounterAudit
from .session_parts import SessionParts
from .sessions.logs import Logs
from .sessions.requests.templates import Templates
from .settings import Settings


class Manager:
    """Holds one object per noun; a handler calls one method of one of them."""

    def __init__(self, settings: Settings, database: Database, clock: Clock = utcnow) -> None:
        self.settings = settings
        self.database = database
        self.clock = clock
        self.metrics = Metrics()
        self.hub = Hub(settings.hub_api_url, settings.hub_api_token)
        self.audit = Audit(database, clock)
        context = ManagerContext(
            database, clock, self.audit, self.capacity_changed, self.sign_outs_due
        )
        secrets = KeypairSecrets(settings.key)
        passwords = Passwords(settings.password_memory_kib, settings.password_rounds)
        self.callers = Callers(database, clock, secrets)
        self.me = Me(database)
        self.domains = Domains(context)
        self.projects = Projects(context, self.domains)
        lockouts = Lockouts(database, settings.key)
        self.users = Users(context, self.domains, self.projects, passwords, secrets, lockouts)
        self.keypairs = Keypairs(context, self.users, secrets)
        self.keypair_policies = Policies("keypair", context)
        self.user_policies = Policies("user", context)
        self.project_policies = Policies("project", context)
        self.resource_groups = ResourceGroups(context)
        self.images = Images(context)
        self.image_aliases = ImageAliases(context)
        endings = TokenEndings(database, self.hub)
        self.sign_ins = SignIns(
            context,
            passwords,
            self.hub,
            endings,
            self.metrics,
            lockouts,
            token_seconds=settings.cli_token_seconds,
        )
        hosts = self.storage_hosts = StorageHosts(context, settings)
        self.quotas = Quotas(context, hosts)
        tasks = self.vfolder_tasks = VFolderTasks(context, hosts, self.quotas, settings.trash_days)
        self.vfolders = VFolders(context, hosts, self.quotas, tasks)
        self.mounts = Mounts(context, hosts)
        self.grants = Grants(context, hosts)
        self.invitations = Invitations(context, hosts)
        self.files = Files(context, hosts, self.quotas, settings)
        self.uploads = Uploads(self.files, hosts, settings)
        parts = SessionParts(context, settings, self.hub, self.mounts)
        self.events, self.feed, self.lifecycle = parts.events, parts.feed, parts.lifecycle
        self.sessions, self.options, self.launch = parts.sessions, parts.options, parts.launch
        self.kernels, self.ledger = parts.kernels, parts.ledger
        self.scheduler, self.starter = parts.scheduler, parts.starter
        self.drain = Drain(self.scheduler, self.starter)
        self.reconciler = parts.reconciler
        self.session_parts = parts
        self.lifetimes, self.uses = parts.lifetimes, parts.uses
        self.health = HealthCheck(database, self.hub, self.scheduler.lease)
        self.agents = Agents(context, settings, parts.kernels)
        self.presets = Presets(context, parts.options)
        self.templates = Templates(context, self.projects)
        self.whys = parts.whys
        self.sign_outs = SignOuts(database, self.hub, endings, self.sessions.stop)
        self.monitoring = Monitoring(database, self.metrics)
        self.counter_audit = CounterAudit(AllocationStore(database), self.metrics, clock)
        self.lifecycle.listen(self.metrics.count_step)
        self.app_shares = AppShares(context, settings, self.sessions)
        self.logs = Logs(self.sessions)
        self.session_tokens = SessionTokens(context, self.hub, self.sessions)
        self.ssh_keys = SshKeys(context)

    async def start(self) -> None:
        """Start the loops (scheduler, starter, reconciler)."""
        await self.vfolders.start()
        self.quotas.start()
        self.sign_outs.start()
        self.session_parts.start()
        self.agents.start()
        self.counter_audit.start()

    async def stop(self) -> None:
        """Stop the loops and wait for them."""
        await self.counter_audit.stop()
        await self.agents.stop()
        await self.session_parts.stop()
        await self.sign_outs.stop()
        await self.files.stop()
        await self.quotas.stop()
        await self.vfolders.stop()
        await self.hub.close()
        await self.database.close()

    def capacity_changed(self) -> None:
        """Run a scheduling pass that reads everything: caps, agents or groups have changed;
        cheap.
        """
        self.scheduler.capacity_changed()

    def sign_outs_due(self) -> None:
        """Sign out users who have been deactivated or marked for sign-out; cheap."""
        self.sign_outs.wake()
