"""Table of the entities that administrators manage, with their fields.

`bai admin` generates commands from this table; `bai apply` reads the fields of its sections from
it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..usage.budgets import MONEY
from .fields import Field, FieldKind


@dataclass(frozen=True, slots=True)
class Entity:
    """A kind of object: its path in the REST API, its fields, and texts for the help."""

    command: str
    noun: str
    path: str
    key: str
    summary: str
    fields: tuple[Field, ...]
    columns: tuple[str, ...]
    # Example key, and example options of `create` and `update`, for the help texts.
    example_key: str
    example_create: str = ""
    example_update: str = ""
    can_create: bool = True
    # Whether the manager generates the key; `create` then takes no name.
    has_generated_key: bool = False
    # Name of the field whose value identifies an object in REST paths.
    id: str = "id"
    # Fields with amounts of money; the currency is another field of the object.
    money: tuple[str, ...] = ()
    # Clearer names of fields for texts that users read; ``--json`` uses the names of the REST API.
    labels: tuple[tuple[str, str], ...] = ()
    # Another name of the command group.
    alias: str = ""

    @property
    def plural(self) -> str:
        """The plural of the noun, for help texts."""
        if self.noun.endswith("y"):
            return f"{self.noun.removesuffix('y')}ies"
        return f"{self.noun}es" if self.noun.endswith("s") else f"{self.noun}s"

    @property
    def section(self) -> str:
        """The name of the section in the YAML of `bai apply`: ``keypair_policies``."""
        return self.path.strip("/").replace("-", "_")

    def field(self, name: str) -> Field | None:
        return next((field for field in self.fields if field.name == name), None)


def _caps(scope: str) -> tuple[Field, ...]:
    """Return the fields that limit concurrent resource use and sessions of ``scope``."""
    return (
        Field(
            "total_resource_slots",
            f"Maximum resources allocated to {scope} at a time; 0 forbids a slot, 'unlimited' or "
            "-1 removes its limit.",
            FieldKind.CAPS,
        ),
        Field(
            "max_concurrent_sessions",
            f"Maximum number of concurrent sessions of {scope}.",
            FieldKind.NUMBER,
            is_nullable=True,
            unlimited=(None,),
        ),
    )


_DESCRIPTION = Field("description", "Description.")
_IS_ACTIVE = Field("is_active", "Enable or disable the object.", FieldKind.FLAG)
_HOSTS = Field("allowed_vfolder_hosts", "Permissions for each storage host.", FieldKind.HOSTS)
_FOLDER_CAPS = (
    Field(
        "max_vfolder_count",
        "Maximum number of folders; 0 = no limit.",
        FieldKind.NUMBER,
        unlimited=(0,),
    ),
    Field(
        "max_quota_scope_bytes",
        "Maximum total size of folders in bytes; -1 = no limit.",
        FieldKind.NUMBER,
        unlimited=(-1,),
    ),
)

_VERSION = Field(
    "version",
    "Change the object only if it still has this version.",
    FieldKind.NUMBER,
    is_update_only=True,
)

DOMAIN = Entity(
    command="domain",
    noun="domain",
    path="/domains",
    key="name",
    id="name",
    summary="Manage domains: tenants whose users and projects are isolated from each other.",
    fields=(_DESCRIPTION, _IS_ACTIVE, *_caps("the domain"), _HOSTS),
    columns=("name", "description", "is_active", "total_resource_slots", "max_concurrent_sessions"),
    example_key="research",
    example_create='--description "Research department"',
    example_update="--max-concurrent-sessions 50",
)
PROJECT = Entity(
    command="project",
    noun="project",
    path="/projects",
    key="name",
    summary="Manage projects: groups of users in a domain that share limits.",
    fields=(
        Field("domain", "Domain of the project. Default: your own.", is_immutable=True),
        _DESCRIPTION,
        _IS_ACTIVE,
        Field(
            "type",
            "Type: general (the default) or model-store.",
            is_immutable=True,
            choices=("general", "model-store"),
        ),
        *_caps("the project"),
        _HOSTS,
        Field("resource_policy", "Project policy. Default: 'default'."),
        Field("default_image", "Default image of sessions.", is_nullable=True),
    ),
    columns=("name", "domain", "description", "is_active", "resource_policy", "default_image"),
    example_key="vision",
    example_create="--domain research",
    example_update="--default-image python",
)
USER = Entity(
    command="user",
    noun="user",
    path="/users",
    key="username",
    summary="Manage user accounts and their roles.",
    fields=(
        Field("email", "E-mail address; must be unique.", is_required=True),
        Field("domain", "Domain of the user. Default: your own."),
        Field("full_name", "Display name."),
        _DESCRIPTION,
        Field(
            "role",
            "Role: superadmin, admin (of the domain), user (the default) or monitor.",
            choices=("superadmin", "admin", "user", "monitor"),
        ),
        Field(
            "status",
            "Status: active, inactive or before-verification.",
            choices=("active", "inactive", "before-verification"),
        ),
        Field("status_info", "Reason for the status."),
        Field("resource_policy", "User policy. Default: 'default'."),
        Field(
            "keypair_policy",
            "Keypair policy of the first keypair. Default: 'default'.",
            is_immutable=True,
        ),
        Field(
            "need_password_change",
            "Require a new password at the next sign-in.",
            FieldKind.FLAG,
        ),
        Field(
            "allowed_client_ip",
            "Address or network from which the user may sign in.",
            FieldKind.LIST,
            is_nullable=True,
        ),
        Field("container_uid", "User id inside containers.", FieldKind.NUMBER, is_nullable=True),
        Field("container_gid", "Group id inside containers.", FieldKind.NUMBER, is_nullable=True),
    ),
    columns=("username", "email", "full_name", "role", "domain", "status", "resource_policy"),
    example_key="ann",
    example_create="--email ann@example.org --domain research",
    example_update="--role admin",
)
KEYPAIR = Entity(
    command="keypair",
    noun="keypair",
    path="/keypairs",
    key="access_key",
    id="access_key",
    has_generated_key=True,
    summary="Manage keypairs: access key and secret key for programs.",
    fields=(
        Field("user", "Owner of the keypair. Default: yourself.", is_immutable=True),
        _IS_ACTIVE,
        Field("resource_policy", "Keypair policy. Default: 'default'."),
        Field("rate_limit", "Maximum number of requests per 15 minutes.", FieldKind.NUMBER),
        Field(
            "is_main",
            "Make this the main keypair: sessions started in the browser count towards its limits.",
            FieldKind.FLAG,
        ),
        Field(
            "new_secret",
            "Replace the secret key; the old one becomes invalid.",
            FieldKind.FLAG,
            is_update_only=True,
        ),
    ),
    columns=("access_key", "user", "is_active", "resource_policy", "last_used"),
    example_key="AKEXAMPLE",
    example_create="--user ann",
    example_update="--no-active",
)
KEYPAIR_POLICY = Entity(
    command="keypair-policy",
    noun="keypair policy",
    path="/keypair-policies",
    key="name",
    id="name",
    alias="policy",
    summary="Manage keypair policies: limits of sessions, assigned to keypairs.",
    fields=(
        Field(
            "default_for_unspecified",
            "Whether slots without a limit are forbidden (LIMITED) or unlimited (UNLIMITED).",
            choices=("LIMITED", "UNLIMITED"),
        ),
        *_caps("a keypair"),
        Field(
            "max_session_lifetime_seconds",
            "Maximum lifetime of a session in seconds; 0 = no limit.",
            FieldKind.NUMBER,
            unlimited=(0,),
        ),
        Field(
            "max_lifetime_extension_seconds",
            "Maximum total time in seconds by which an owner may extend a session.",
            FieldKind.NUMBER,
        ),
        Field(
            "max_pending_sessions",
            "Maximum number of pending sessions of a keypair.",
            FieldKind.NUMBER,
            is_nullable=True,
            unlimited=(None,),
        ),
        Field(
            "max_pending_slots",
            "Maximum resources requested by the pending sessions of a keypair.",
            FieldKind.CAPS,
            is_nullable=True,
            unlimited=(None,),
        ),
        Field(
            "max_priority",
            "Maximum priority of a session, 0 to 100.",
            FieldKind.NUMBER,
            is_nullable=True,
            unlimited=(None,),
        ),
        Field(
            "max_containers_per_session",
            "Maximum number of containers of a session.",
            FieldKind.NUMBER,
        ),
        Field(
            "idle_timeout_seconds",
            "Time in seconds after which an idle interactive session is stopped; 0 = never.",
            FieldKind.NUMBER,
            unlimited=(0,),
        ),
        _HOSTS,
    ),
    columns=("name", "total_resource_slots", "default_for_unspecified", "max_concurrent_sessions"),
    example_key="small",
    example_create="--total-resource-slots cpu=8 --total-resource-slots mem=32g",
    example_update="--max-concurrent-sessions 5",
)
USER_POLICY = Entity(
    command="user-policy",
    noun="user policy",
    path="/user-policies",
    key="name",
    id="name",
    summary="Manage user policies: limits of a user's sessions (over all keypairs), folders, "
    "browser sign-ins and app shares.",
    fields=(
        *_caps("a user"),
        Field(
            "max_pending_sessions",
            "Maximum number of pending sessions of a user. Default: 1000.",
            FieldKind.NUMBER,
            is_nullable=True,
            unlimited=(None,),
        ),
        Field(
            "max_schedules",
            "Maximum number of schedules of a user. Default: 20.",
            FieldKind.NUMBER,
            is_nullable=True,
            unlimited=(None,),
        ),
        Field(
            "max_custom_images",
            "Maximum number of custom images of a user. Default: 3.",
            FieldKind.NUMBER,
            is_nullable=True,
            unlimited=(None,),
        ),
        Field(
            "allows_public_endpoints",
            "Whether users may create endpoints that can be called without a token.",
            FieldKind.FLAG,
        ),
        *_FOLDER_CAPS,
        Field(
            "max_concurrent_logins",
            "Maximum number of signed-in browsers; a further sign-in must be confirmed.",
            FieldKind.NUMBER,
            is_nullable=True,
            unlimited=(None,),
        ),
        Field(
            "app_sharing",
            "Widest audience of app shares: none, user, project or public.",
            choices=("none", "user", "project", "public"),
        ),
        Field(
            "max_app_share_seconds",
            "Maximum lifetime of an app share in seconds; 0 = no limit.",
            FieldKind.NUMBER,
            unlimited=(0,),
        ),
    ),
    columns=("name", "total_resource_slots", "max_concurrent_sessions", "max_vfolder_count"),
    example_key="student",
    example_create="--max-vfolder-count 10",
    example_update="--max-concurrent-logins 2",
)
PROJECT_POLICY = Entity(
    command="project-policy",
    noun="project policy",
    path="/project-policies",
    key="name",
    id="name",
    summary="Manage project policies: limits of a project's folders, and imports of models.",
    fields=(
        *_FOLDER_CAPS,
        Field(
            "max_custom_images",
            "Maximum number of custom images of a project.",
            FieldKind.NUMBER,
            is_nullable=True,
            unlimited=(None,),
        ),
        Field(
            "allows_member_imports",
            "Whether members of a model store import models without an approval.",
            FieldKind.FLAG,
        ),
    ),
    columns=("name", "max_vfolder_count", "max_quota_scope_bytes"),
    example_key="course",
    example_create="--max-vfolder-count 20",
    example_update="--max-quota-scope-bytes 107374182400",
)
RESOURCE_GROUP = Entity(
    command="group",
    noun="resource group",
    path="/resource-groups",
    key="name",
    id="name",
    summary="Manage resource groups: sets of agents with one engine and one scheduling policy.",
    fields=(
        _DESCRIPTION,
        _IS_ACTIVE,
        Field("is_default", "Use the group for sessions that request no group.", FieldKind.FLAG),
        Field(
            "is_public", "Allow all users to use the group, even without a link.", FieldKind.FLAG
        ),
        Field(
            "engine", "Engine that runs sessions: process or docker.", choices=("process", "docker")
        ),
        Field(
            "scheduler",
            "Order of the queue: fifo, lifo, drf or fair-share.",
            choices=("fifo", "lifo", "drf", "fair-share"),
        ),
        Field(
            "scheduler_opts",
            "Options of the scheduler. An update changes only the given options: null resets one "
            "option, and 'none' all options. See the admin guide.",
            FieldKind.OPTIONS,
        ),
        Field(
            "allowed_session_types",
            "Session type that may run in the group.",
            FieldKind.LIST,
            choices=("interactive", "batch", "inference", "system"),
        ),
        *_caps("the group"),
    ),
    columns=("name", "engine", "scheduler", "is_active", "is_default", "is_public"),
    example_key="gpu",
    example_create="--engine docker --scheduler fair-share",
    example_update="--public",
)
IMAGE = Entity(
    command="image",
    noun="image",
    path="/images",
    key="name",
    summary="Manage the images that sessions run.",
    fields=(
        Field("architecture", "CPU architecture. Default: x86_64.", is_immutable=True),
        _DESCRIPTION,
        _IS_ACTIVE,
        Field("digest", "Digest of the content."),
        Field("size_bytes", "Size in bytes.", FieldKind.NUMBER),
        Field("labels", "Labels.", FieldKind.MAP),
        Field("min_slots", "Minimum resources of a session.", FieldKind.SLOTS),
        Field("max_slots", "Maximum resources of a session.", FieldKind.SLOTS),
    ),
    columns=("name", "architecture", "description", "is_active", "min_slots"),
    example_key="registry.example.org/pytorch:2.4",
    example_create="--min-slots cpu=1 --min-slots mem=2g",
    example_update="--no-active",
)
IMAGE_ALIAS = Entity(
    command="alias",
    noun="image alias",
    path="/image-aliases",
    key="alias",
    id="alias",
    summary="Manage image aliases: short names of images.",
    fields=(Field("image", "Name or id of the image.", is_required=True),),
    columns=("alias", "image"),
    example_key="pytorch",
    example_create="--image registry.example.org/pytorch:2.4",
    example_update="--image registry.example.org/pytorch:2.5",
)
IMAGE_REGISTRY = Entity(
    command="registry",
    noun="image registry",
    path="/image-registries",
    key="name",
    id="name",
    summary="Manage image registries: find images in them and pull from them with a password.",
    fields=(
        Field(
            "kind",
            "Kind: docker (the default), harbor, ghcr, gitlab, ngc or ecr.",
            is_immutable=True,
            choices=("docker", "harbor", "ghcr", "gitlab", "ngc", "ecr"),
        ),
        Field("url", "URL, such as https://registry.example.org. Default: the URL of the kind."),
        Field("username", "User name. Default: the user name of the kind."),
        Field(
            "repositories",
            "Repository to scan; may be repeated. Default: all listed repositories.",
            FieldKind.LIST,
        ),
        Field(
            "patterns",
            "Pattern of REPOSITORY:TAG, such as 'team/*:3.*'; may be repeated. Default: all tags.",
            FieldKind.LIST,
        ),
        Field(
            "rescan_seconds",
            "Seconds between scans, at least 300; 0 (the default): only on request.",
            FieldKind.NUMBER,
        ),
        Field("is_enabled", "Offer, pull and scan the images of the registry.", FieldKind.FLAG),
        Field("activates_images", "Make found images active at once.", FieldKind.FLAG),
        Field("labelled_only", "Ignore images without labels of the platform.", FieldKind.FLAG),
        Field("is_global", "Offer the images in all projects.", FieldKind.FLAG),
        Field(
            "allowed_projects",
            "Project that may use its images, with --no-global; may be repeated.",
            FieldKind.LIST,
        ),
    ),
    columns=("name", "kind", "url", "is_enabled", "scan_status", "scan_tags", "scan_ended_at"),
    example_key="lab",
    example_create="--url https://registry.example.org --username robot",
    example_update="--rescan-seconds 3600",
)
PRESET = Entity(
    command="preset",
    noun="preset",
    path="/presets",
    key="name",
    summary="Manage presets: named sets of resources.",
    fields=(
        Field(
            "resource_group",
            "Offer the preset only in this resource group. Default: in all groups.",
            is_immutable=True,
        ),
        Field("resource_slots", "Resources of the preset.", FieldKind.SLOTS, is_required=True),
        Field(
            "shared_memory", "Size of /dev/shm, such as 256m.", FieldKind.MEMORY, is_nullable=True
        ),
    ),
    columns=("name", "resource_group", "resource_slots", "shared_memory"),
    example_key="small",
    example_create="--resource-slots cpu=1 --resource-slots mem=2g",
    example_update="--shared-memory 256m",
)
AGENT = Entity(
    command="agent",
    noun="agent",
    path="/agents",
    key="id",
    summary="Manage agents: the machines that run sessions.",
    fields=(
        Field("schedulable", "Place new sessions on the agent.", FieldKind.FLAG),
        Field("resource_group", "Resource group of the agent."),
        Field("endpoint", "URL of its Docker engine for the Hub, if the agent has joined."),
    ),
    columns=("id", "status", "free", "used", "slots", "resource_group", "schedulable", "engine"),
    can_create=False,
    example_key="gpu-node-1",
    example_update="--resource-group gpu",
)

IDLE_CHECKER = Entity(
    command="idle-checker",
    noun="idle checker",
    path="/idle-checkers",
    key="name",
    summary="Manage idle checkers: rules that stop sessions that are not used.",
    fields=(
        _DESCRIPTION,
        Field(
            "type",
            "Type: network (inactivity), session-lifetime or utilization.",
            is_required=True,
            is_immutable=True,
            choices=("network", "session-lifetime", "utilization"),
        ),
        Field(
            "max_seconds",
            "Maximum inactivity or lifetime, or the length of the window, in seconds.",
            FieldKind.NUMBER,
            is_required=True,
        ),
        Field(
            "session_types",
            "Session type that the rule covers: interactive (the default), batch or inference.",
            FieldKind.LIST,
            choices=("interactive", "batch", "inference"),
        ),
        Field(
            "initial_grace_seconds",
            "Grace period in seconds after the start of a session.",
            FieldKind.NUMBER,
        ),
        Field(
            "thresholds",
            "Utilization below which a session is idle: percent of cpu_util, mem, FAMILY_util and "
            "FAMILY_mem; bytes per second of net and io.",
            FieldKind.MAP,
        ),
        Field(
            "operator",
            "Whether all metrics must be below (and), or any (or).",
            choices=("and", "or"),
        ),
        Field(
            "idle_percent",
            "Percentage of the samples in the window that must be idle. Default: 90.",
            FieldKind.NUMBER,
        ),
        Field(
            "min_seconds_under_pressure",
            "Shortest window in seconds while other sessions wait for the resources; 0 = the "
            "window does not shrink.",
            FieldKind.NUMBER,
        ),
        Field(
            "only_under_pressure",
            "Stop sessions only while other sessions wait for their resources.",
            FieldKind.FLAG,
        ),
        Field(
            "warnings_seconds",
            "Time of a warning in seconds before the end; shorter than --max-seconds. Default: 600 "
            "and 120, if they are shorter.",
            FieldKind.NUMBERS,
        ),
        Field(
            "max_keep_alives",
            "Maximum number of keep-alives of a session. Default: 3.",
            FieldKind.NUMBER,
        ),
        Field("allows_exclusion", "Allow users to exclude their sessions.", FieldKind.FLAG),
        _VERSION,
    ),
    columns=("name", "type", "max_seconds", "thresholds", "session_types", "bindings"),
    example_key="idle-gpu",
    example_create="--type utilization --max-seconds 3600 --thresholds '{\"cuda_util\": 5}'",
    example_update="--idle-percent 80",
)

ANNOUNCEMENT = Entity(
    command="announcement",
    noun="announcement",
    path="/announcements",
    key="id",
    summary="Manage announcements: texts that users see during a period.",
    fields=(
        Field("title", "Title, one line.", is_required=True),
        Field("text", "Text in Markdown."),
        Field(
            "level",
            "Level: info (the default), warning or critical.",
            choices=("info", "warning", "critical"),
        ),
        Field(
            "audience",
            "Audience: everyone (the default), domain, project or role.",
            is_immutable=True,
            choices=("everyone", "domain", "project", "role"),
        ),
        Field("target", "The domain, project or role of the audience.", is_immutable=True),
        Field("starts_at", "Start of the period, such as 2026-12-01T08:00Z. Default: now."),
        Field("ends_at", "End of the period. Default: no end.", is_nullable=True),
        _VERSION,
    ),
    columns=("title", "level", "audience", "target_name", "starts_at", "ends_at", "id"),
    has_generated_key=True,
    example_key="3f6c1d8e",
    example_create='--title "New GPUs" --text "Group **gpu**." --ends-at 2026-12-01T00:00Z',
    example_update="--level warning",
)

MAINTENANCE = Entity(
    command="maintenance",
    noun="maintenance",
    path="/maintenances",
    key="id",
    summary="Plan maintenance: periods in which sessions do not start.",
    fields=(
        Field(
            "scope",
            "Scope: all (the default), group or agent.",
            is_immutable=True,
            choices=("all", "group", "agent"),
        ),
        Field("target", "The resource group or agent of the scope.", is_immutable=True),
        Field(
            "mode",
            "no-starts: no session starts in the period. drain (the default): in addition, "
            "sessions whose time limit reaches into it wait; sessions without a limit start. "
            "read-only: like no-starts; users also cannot change anything.",
            is_immutable=True,
            choices=("no-starts", "drain", "read-only"),
        ),
        Field("reason", "Reason, which users see.", is_required=True),
        Field("starts_at", "Start of the period, such as 2026-12-01T08:00Z. Default: now."),
        Field("ends_at", "End of the period. Default: no end.", is_nullable=True),
        _VERSION,
    ),
    columns=("scope", "target", "mode", "starts_at", "ends_at", "reason", "id"),
    has_generated_key=True,
    example_key="3f6c1d8e",
    example_create='--scope group --target gpu --reason "New disks"',
    example_update="--ends-at 2026-12-01T12:00Z",
)

BUDGET = Entity(
    command="budget",
    noun="budget",
    path="/budgets",
    key="project",
    id="project_id",
    summary="Manage budgets: what projects may spend in a period.",
    fields=(
        Field(
            "amount",
            "Amount in the currency of the prices, with at most two decimal places.",
            FieldKind.DECIMAL,
            is_required=True,
        ),
        Field(
            "mode",
            "warn (the default), or block: no session of the project starts once the amount is "
            "spent.",
            choices=("warn", "block"),
        ),
        Field(
            "warn_percents",
            "Percentage of the amount at which a warning is sent. Default: 80 and 100.",
            FieldKind.NUMBERS,
        ),
        Field(
            "period",
            "month (the default): each calendar month. fixed: from --starts-at to --ends-at.",
            choices=("month", "fixed"),
        ),
        Field("starts_at", "Start of a fixed period, such as 2026-12-01T00:00Z.", is_nullable=True),
        Field("ends_at", "End of a fixed period.", is_nullable=True),
        Field("time_zone", "Time zone in which a month begins, such as Asia/Seoul. Default: UTC."),
        Field(
            "stop_after_minutes",
            "With block: minutes after the amount was spent until running sessions are stopped. "
            "Default: they continue.",
            FieldKind.NUMBER,
            is_nullable=True,
        ),
        _VERSION,
    ),
    columns=("project", "domain", "amount", "spent", "left", "mode", "blocked_at"),
    money=MONEY,
    labels=(("spent_at", "spent_computed_until"),),
    example_key="default",
    example_create="--amount 1000 --mode block --time-zone Asia/Seoul",
    example_update="--amount 1500",
)

OVERFLOW_RULE = Entity(
    command="overflow-rule",
    noun="overflow rule",
    path="/overflow-rules",
    key="id",
    has_generated_key=True,
    summary="Manage overflow rules: pending sessions of a project move to another resource group.",
    fields=(
        Field("project", "Project of the sessions.", is_required=True, is_immutable=True),
        Field(
            "from_group",
            "Resource group in which the sessions are pending.",
            is_required=True,
            is_immutable=True,
        ),
        Field(
            "to_group",
            "Resource group to which a session moves as soon as it can start there.",
            is_required=True,
            is_immutable=True,
        ),
        Field(
            "after_seconds",
            "Minimum wait in from_group, in seconds. Default: 300.",
            FieldKind.NUMBER,
        ),
        Field(
            "position",
            "The rules of a project are tried in ascending order; with the same position, the "
            "cheapest resource group is first. Default: 0.",
            FieldKind.NUMBER,
        ),
        _VERSION,
    ),
    columns=("id", "project", "from_group", "to_group", "after_seconds", "position"),
    example_key="0f8b",
    example_create="--project vision --from-group gpu --to-group cloud --after-seconds 600",
    example_update="--after-seconds 300",
)

# Not part of `bai apply`: the manager creates and deletes these objects itself.
PROVISIONED_MACHINE = Entity(
    command="provisioning",
    noun="provisioned machine",
    path="/provisioned-machines",
    key="id",
    summary="List and stop the machines that the provisioning command has started.",
    fields=(),
    columns=("id", "resource_group", "status", "reason", "reference", "agent_id", "created_at"),
    can_create=False,
    example_key="0f8b",
)

ENTITIES = (
    DOMAIN, PROJECT, USER, KEYPAIR, KEYPAIR_POLICY, USER_POLICY, PROJECT_POLICY,
    RESOURCE_GROUP, IMAGE, IMAGE_ALIAS, IMAGE_REGISTRY, PRESET, AGENT, IDLE_CHECKER, ANNOUNCEMENT,
    MAINTENANCE, BUDGET, OVERFLOW_RULE,
)  # fmt: skip
