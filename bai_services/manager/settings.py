"""Settings of the manager."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bai_services.branding import Brand
from bai_services.core.accounts.one_time_codes import CodeRules
from bai_services.core.sessions.callbacks import AllowedTargets


@dataclass(frozen=True, slots=True)
class StorageHostSettings:
    """Name, backend and root path of a storage host."""

    name: str
    backend: str
    path: Path


@dataclass(frozen=True, slots=True)
class MailServer:
    """The mail server (SMTP) for outgoing mails.

    ``security``: ``starttls``, ``tls`` (from the first byte) or ``none``. ``sender``: address in
    the header From. Without ``user``, the server needs no sign-in.
    """

    host: str
    port: int
    security: str
    sender: str
    user: str = ""
    password: str = field(default="", repr=False)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the manager, created once at start.

    ``bai_services.environment`` reads some of them from ``BAI_*`` variables and JupyterHub's
    variables (docs/admin-guide/settings.md); the others keep their defaults.

    The repr contains no tokens, no key and no database URL.
    """

    home: Path
    database_url: str = field(repr=False)  # may contain a password
    storage_root: Path
    hub_token: str = field(repr=False)
    agent_token: str = field(repr=False)
    gateway_token: str = field(repr=False)
    # Token for Prometheus to read the metrics; empty: Prometheus needs a monitor's token.
    metrics_token: str = field(default="", repr=False, kw_only=True)
    key: bytes = field(repr=False)  # Fernet key that encrypts secrets in the database
    hub_api_url: str = ""
    hub_api_token: str = field(default="", repr=False)
    base_url: str = "/services/bai"  # prefix of every route
    hub_base_url: str = "/"
    # Scheme and host of the installation, for links in notifications; empty: unknown.
    public_origin: str = ""
    brand: Brand = Brand()
    # A Hub token or cookie identifies a user to the manager if it has one of these scopes.
    hub_access_scopes: frozenset[str] = frozenset(
        {"access:services", "access:services!service=bai"}
    )
    # Networks or addresses of peers whose X-Forwarded-For is trusted; "own" means the addresses of
    # this machine.
    trusted_proxies: tuple[str, ...] = ("own",)
    # Cost of argon2id; a change applies to each user at the next sign-in.
    password_memory_kib: int = 65_536
    password_rounds: int = 3
    # Days after which a password must be changed at the next sign-in; 0: never.
    password_max_age_days: int = 0
    # Days after which a suspended session ends and its home is deleted.
    suspended_days: int = 30
    # Whether users sign in with one-time codes, by domain.
    one_time_codes: CodeRules = CodeRules()
    # The first storage host is the default. If empty, the only host is ``local`` at
    # ``storage_root``.
    storage_hosts: tuple[StorageHostSettings, ...] = ()
    # If None, bai-hub sends no mails.
    mail: MailServer | None = None
    # Docker URL of a manager of the nodes' Swarm; empty: the installation has no Swarm.
    swarm_host: str = ""
    # Program that starts and stops machines; empty: none. It is killed after the time-out.
    provisioning_command: str = ""
    provisioning_timeout_seconds: float = 300.0
    # Whether users may list the agents of their resource groups.
    shows_agents: bool = False
    # Whether the web UI masks names and e-mail addresses of users.
    masks_users: bool = False
    # Whether forms offer images that no agent of the resource group has yet.
    shows_absent_images: bool = True
    # Days until a folder in the trash is purged automatically; 0: never.
    trash_days: int = 30
    # Days until an entry of the audit log is removed; 0: never.
    audit_days: int = 730
    # Days after the end of a session until its logs are removed; 0: never.
    session_log_days: int = 365
    # An unfinished upload expires this many seconds after its start or its last received byte.
    upload_expiry_seconds: int = 24 * 3600
    # Maximum number of unfinished uploads of a user; each part of a split upload counts.
    max_open_uploads: int = 256
    # Maximum size of one uploaded file, and of all files from one uploaded archive. Sessions may
    # write larger files.
    max_file_bytes: int = 16 * 2**30
    # URL of the Prometheus server for queries in scaling rules; empty: none. Owners of endpoints
    # can query all its data.
    prometheus_url: str = field(default="", repr=False)  # may contain a password
    # Domain of the endpoints' host names at the gateway; empty: endpoints have no host names.
    gateway_domain: str = ""
    # Addresses that callbacks of sessions may reach.
    callback_targets: AllowedTargets = AllowedTargets()
    # The hub from which models are imported, a token for it ("" without one), the addresses that
    # imports may reach, and the maximum size of one import.
    model_hub_url: str = "https://huggingface.co"
    model_hub_token: str = field(default="", repr=False)
    import_reach: AllowedTargets = AllowedTargets()
    import_max_bytes: int = 500 * 2**30
    # Addresses that scans of image registries may reach.
    registry_reach: AllowedTargets = AllowedTargets()
    # Name of the image registry to which custom images are pushed; empty: they stay on the agent.
    commit_registry: str = ""
    # Maximum size of the changes of a session in a custom image; 0: no limit.
    commit_max_bytes: int = 20 * 2**30
    # Whether users may build custom images from recipes, and the maximum time of a build.
    builds_recipes: bool = False
    build_timeout_seconds: int = 3600
    cli_token_seconds: int = 30 * 24 * 3600
    heartbeat_deadline_seconds: int = 40
    # Another manager takes over if the lease is not renewed for this time.
    lease_seconds: float = 15.0
    heartbeat_interval_seconds: int = 5

    # Settings from the environment, and fields whose value an administrator has set in the
    # database.
    configured: Mapping[str, str] = field(default_factory=dict, repr=False)
    overridden: frozenset[str] = frozenset()

    @property
    def hosts(self) -> tuple[StorageHostSettings, ...]:
        """Return the storage hosts, at least one."""
        return self.storage_hosts or (StorageHostSettings("local", "local", self.storage_root),)
