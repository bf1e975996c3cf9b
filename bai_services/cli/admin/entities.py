"""What an administrator manages: one table of entities and their fields.

`bai admin` makes its commands from it and `bai apply` its sections.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from bai_services.core.errors import InvalidRequest
from bai_services.core.folders.storage_hosts import check_hosts
from bai_services.core.resources import Caps, ResourceSlots, parse_amount

from .group_options import spelled


class FieldKind(Enum):
    """How a value is written on the command line and in YAML, and when two are the same."""

    TEXT = auto()
    NUMBER = auto()
    FLAG = auto()
    SLOTS = auto()  # map of slot to amount; 0 is the same as absent
    CAPS = auto()  # map of slot to limit; 0 forbids the slot, "unlimited" or -1 lifts the limit
    MEMORY = auto()  # amount of memory as text: 64m
    LIST = auto()  # list of texts
    HOSTS = auto()  # map of storage host to list of permissions
    MAP = auto()  # any JSON object
    OPTIONS = auto()  # options of a resource group


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the REST API. ``none`` clears one that may be empty."""

    name: str
    help: str
    kind: FieldKind = FieldKind.TEXT
    is_nullable: bool = False
    is_fixed: bool = False  # set when it is created, never changed
    is_late: bool = False  # only changed, never given when it is created
    is_required: bool = False

    @property
    def option(self) -> str:
        """The option's name: ``is_active`` is ``active``."""
        return self.name.removeprefix("is_").replace("_", "-")


@dataclass(frozen=True, slots=True)
class Entity:
    """A kind of thing: where the REST API has it and what its ``key`` field is called."""

    command: str
    path: str
    key: str
    summary: str
    fields: tuple[Field, ...]
    columns: tuple[str, ...]
    # The key and the options of `create` and of `update` in the examples of the help.
    example_key: str
    example_create: str = ""
    example_update: str = ""
    can_create: bool = True
    # The manager makes the key; the command's create takes no name.
    key_is_made: bool = False
    # The field by which a thing is addressed in the path.
    id: str = "id"
    alias: str = ""

    @property
    def section(self) -> str:
        """Its name in the YAML of `bai apply`: ``keypair_policies``."""
        return self.path.strip("/").replace("-", "_")

    def field(self, name: str) -> Field | None:
        return next((field for field in self.fields if field.name == name), None)


def checked(field: Field, value: Any) -> Any:
    """Return ``value`` as the REST API takes it.

    Raises
    ------
    InvalidRequest
        If it is of another kind than the field.
    """
    if value is None and field.is_nullable:
        return None
    try:
        return _READERS[field.kind](value)
    except (TypeError, ValueError):
        raise InvalidRequest(
            f"{field.name}: {value!r} is not {_NOUNS[field.kind]}", field=field.name
        ) from None


def comparable(field: Field, value: Any) -> Any:
    """Return ``value`` in a form that is equal for equal meanings: ``1g`` is ``1024m``."""
    if value is None:
        return None
    if field.kind in (FieldKind.SLOTS, FieldKind.CAPS):
        return (Caps if field.kind is FieldKind.CAPS else ResourceSlots).parse(value)
    if field.kind is FieldKind.MEMORY:
        return parse_amount("mem", value)
    if field.kind is FieldKind.LIST:
        return sorted(value)
    if field.kind is FieldKind.HOSTS:
        return check_hosts(value)
    return value


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _text(value: Any) -> str:
    if isinstance(value, (bool, Mapping, list)) or value is None:
        raise TypeError
    return str(value)


def _slots(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise TypeError
    texts = {_text(slot): _text(amount) for slot, amount in value.items()}
    for slot, amount in texts.items():
        parse_amount(slot, amount)
    return texts


def _caps_texts(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise TypeError
    texts = {_text(slot): _text(cap) for slot, cap in value.items()}
    Caps.parse(texts)
    return texts


def _memory(value: Any) -> str:
    text = _text(value)
    parse_amount("mem", text)
    return text


def _list(value: Any) -> list[str]:
    if not isinstance(value, (list, tuple)):
        raise TypeError
    return [_text(item) for item in value]


def _hosts(value: Any) -> dict[str, list[str]]:
    return check_hosts({_text(host): _list(names) for host, names in _map(value).items()})


def _map(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError
    return dict(value)


def _options(value: Any) -> dict[str, Any]:
    return spelled(_map(value))


_READERS = {
    FieldKind.TEXT: _text,
    FieldKind.NUMBER: _number,
    FieldKind.FLAG: _flag,
    FieldKind.SLOTS: _slots,
    FieldKind.CAPS: _caps_texts,
    FieldKind.MEMORY: _memory,
    FieldKind.LIST: _list,
    FieldKind.HOSTS: _hosts,
    FieldKind.MAP: _map,
    FieldKind.OPTIONS: _options,
}
_NOUNS = {
    FieldKind.TEXT: "a text",
    FieldKind.NUMBER: "a whole number",
    FieldKind.FLAG: "true or false",
    FieldKind.SLOTS: "a map of slot to amount",
    FieldKind.CAPS: "a map of slot to limit",
    FieldKind.MEMORY: "an amount of memory",
    FieldKind.LIST: "a list of texts",
    FieldKind.HOSTS: "a map of storage host to permissions",
    FieldKind.MAP: "a map",
    FieldKind.OPTIONS: "a map",
}


_CAPS_HELP = "Most that {of} may hold at once; 0 forbids a slot, unlimited or -1 lifts its limit."


def _caps(of: str) -> tuple[Field, ...]:
    return (
        Field("total_resource_slots", _CAPS_HELP.format(of=of), FieldKind.CAPS),
        Field(
            "max_concurrent_sessions", "Most sessions at once.", FieldKind.NUMBER, is_nullable=True
        ),
    )


_DESCRIPTION = Field("description", "What it is for.")
_IS_ACTIVE = Field("is_active", "Whether it may be used.", FieldKind.FLAG)
_HOSTS = Field(
    "allowed_vfolder_hosts", "Storage hosts and what may be done there.", FieldKind.HOSTS
)
_FOLDER_CAPS = (
    Field("max_vfolder_count", "Most folders; 0 = no limit.", FieldKind.NUMBER),
    Field("max_quota_scope_bytes", "Most bytes in folders; -1 = no limit.", FieldKind.NUMBER),
)

DOMAIN = Entity(
    command="domain",
    path="/domains",
    key="name",
    id="name",
    summary="Tenants: people and projects that see nothing of other domains.",
    fields=(_DESCRIPTION, _IS_ACTIVE, *_caps("the domain"), _HOSTS),
    columns=("name", "description", "is_active", "total_resource_slots", "max_concurrent_sessions"),
    example_key="research",
    example_create='--description "Research department"',
    example_update="--max-concurrent-sessions 50",
)
PROJECT = Entity(
    command="project",
    path="/projects",
    key="name",
    summary="Groups of people in a domain that share limits.",
    fields=(
        Field("domain", "Domain that it belongs to; default: your own.", is_fixed=True),
        _DESCRIPTION,
        _IS_ACTIVE,
        Field("type", "general or model-store.", is_fixed=True),
        *_caps("the project"),
        _HOSTS,
        Field("resource_policy", "Project policy."),
        Field("default_image", "Image of sessions that name none.", is_nullable=True),
    ),
    columns=("name", "domain", "description", "is_active", "resource_policy", "default_image"),
    example_key="vision",
    example_create="--domain research",
    example_update="--default-image python",
)
USER = Entity(
    command="user",
    path="/users",
    key="username",
    summary="People and their roles.",
    fields=(
        Field("email", "E-mail address; unique.", is_required=True),
        Field("domain", "Domain that they belong to; default: your own."),
        Field("full_name", "Name to show."),
        _DESCRIPTION,
        Field("role", "superadmin, admin (of the domain), user or monitor."),
        Field("status", "active, inactive or before-verification."),
        Field("status_info", "Why it has that status."),
        Field("resource_policy", "User policy."),
        Field("keypair_policy", "Policy of their first keypair.", is_fixed=True),
        Field("need_password_change", "Ask for a new password at sign-in.", FieldKind.FLAG),
        Field(
            "allowed_client_ip",
            "Networks that they may sign in from.",
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
    path="/keypairs",
    key="access_key",
    id="access_key",
    key_is_made=True,
    summary="Keys for programs: access key and secret key.",
    fields=(
        Field("user", "Whose it is; default: your own.", is_fixed=True),
        _IS_ACTIVE,
        Field("resource_policy", "Keypair policy."),
        Field("rate_limit", "Most requests in 15 minutes.", FieldKind.NUMBER),
        Field(
            "is_main", "Make it the one that sessions from the browser count in.", FieldKind.FLAG
        ),
        Field(
            "new_secret",
            "Make a new secret key; the old one is void.",
            FieldKind.FLAG,
            is_late=True,
        ),
    ),
    columns=("access_key", "user", "is_active", "resource_policy", "last_used"),
    example_key="AKEXAMPLE",
    example_create="--user ann",
    example_update="--no-active",
)
KEYPAIR_POLICY = Entity(
    command="keypair-policy",
    path="/keypair-policies",
    key="name",
    id="name",
    alias="policy",
    summary="Limits of sessions, given to keypairs.",
    fields=(
        Field("default_for_unspecified", "LIMITED or UNLIMITED: what a slot not named means."),
        *_caps("one keypair"),
        Field("max_session_lifetime_seconds", "0 = no limit.", FieldKind.NUMBER),
        Field(
            "max_lifetime_extension_seconds",
            "Most that an owner may add to a session's lifetime.",
            FieldKind.NUMBER,
        ),
        Field(
            "max_pending_sessions", "Most that wait at once.", FieldKind.NUMBER, is_nullable=True
        ),
        Field("max_pending_slots", "Most that waiting ones ask.", FieldKind.CAPS, is_nullable=True),
        Field("max_priority", "Highest priority to ask for.", FieldKind.NUMBER, is_nullable=True),
        Field("max_containers_per_session", "Most containers of a session.", FieldKind.NUMBER),
        Field("idle_timeout_seconds", "0 = never stopped for being idle.", FieldKind.NUMBER),
        _HOSTS,
    ),
    columns=("name", "total_resource_slots", "default_for_unspecified", "max_concurrent_sessions"),
    example_key="small",
    example_create="--total-resource-slots cpu=8 --total-resource-slots mem=32g",
    example_update="--max-concurrent-sessions 5",
)
USER_POLICY = Entity(
    command="user-policy",
    path="/user-policies",
    key="name",
    id="name",
    summary="Limits of a person over all keypairs, and of their folders.",
    fields=(
        *_caps("one person"),
        Field(
            "max_pending_sessions",
            "Most sessions of one person that wait at once (1,000).",
            FieldKind.NUMBER,
            is_nullable=True,
        ),
        *_FOLDER_CAPS,
        Field(
            "max_concurrent_logins",
            "Most browsers signed in at once; one more signs out the oldest.",
            FieldKind.NUMBER,
            is_nullable=True,
        ),
        Field("app_sharing", "Whom apps may be shared with: none, user, project or public."),
        Field("max_app_share_seconds", "For how long; 0 = no limit.", FieldKind.NUMBER),
    ),
    columns=("name", "total_resource_slots", "max_concurrent_sessions", "max_vfolder_count"),
    example_key="student",
    example_create="--max-vfolder-count 10",
    example_update="--max-concurrent-logins 2",
)
PROJECT_POLICY = Entity(
    command="project-policy",
    path="/project-policies",
    key="name",
    id="name",
    summary="Limits of a project's folders.",
    fields=_FOLDER_CAPS,
    columns=("name", "max_vfolder_count", "max_quota_scope_bytes"),
    example_key="course",
    example_create="--max-vfolder-count 20",
    example_update="--max-quota-scope-bytes 107374182400",
)
RESOURCE_GROUP = Entity(
    command="group",
    path="/resource-groups",
    key="name",
    id="name",
    summary="Groups of agents, with engine and scheduler.",
    fields=(
        _DESCRIPTION,
        _IS_ACTIVE,
        Field("is_default", "Taken when a session names none.", FieldKind.FLAG),
        Field("is_public", "Shown to users.", FieldKind.FLAG),
        Field("engine", "process or docker."),
        Field("scheduler", "Order of its queue: fifo, lifo, drf or fair-share."),
        Field(
            "scheduler_opts", "Options of the scheduler; see the admin guide.", FieldKind.OPTIONS
        ),
        Field("allowed_session_types", "Types of sessions that may run here.", FieldKind.LIST),
        *_caps("the group"),
    ),
    columns=("name", "engine", "scheduler", "is_active", "is_default", "is_public"),
    example_key="gpu",
    example_create="--engine docker --scheduler fair-share",
    example_update="--public",
)
IMAGE = Entity(
    command="image",
    path="/images",
    key="name",
    summary="Images that sessions run.",
    fields=(
        Field("architecture", "For instance x86_64.", is_fixed=True),
        _DESCRIPTION,
        _IS_ACTIVE,
        Field("digest", "Digest of its content."),
        Field("size_bytes", "Size.", FieldKind.NUMBER),
        Field("labels", "Its labels.", FieldKind.MAP),
        Field("min_slots", "Least that a session of it needs.", FieldKind.SLOTS),
        Field("max_slots", "Most that a session of it may ask.", FieldKind.SLOTS),
    ),
    columns=("name", "architecture", "description", "is_active", "min_slots"),
    example_key="registry.example.org/pytorch:2.4",
    example_create="--min-slots cpu=1 --min-slots mem=2g",
    example_update="--no-active",
)
IMAGE_ALIAS = Entity(
    command="alias",
    path="/image-aliases",
    key="alias",
    id="alias",
    summary="Short names of images.",
    fields=(Field("image", "Name or id of the image.", is_required=True),),
    columns=("alias", "image"),
    example_key="pytorch",
    example_create="--image registry.example.org/pytorch:2.4",
    example_update="--image registry.example.org/pytorch:2.5",
)
PRESET = Entity(
    command="preset",
    path="/presets",
    key="name",
    summary="Amounts to choose by name.",
    fields=(
        Field("resource_group", "Only in this group; default: in all.", is_fixed=True),
        Field("resource_slots", "The amounts.", FieldKind.SLOTS, is_required=True),
        Field("shared_memory", "Size of /dev/shm.", FieldKind.MEMORY, is_nullable=True),
    ),
    columns=("name", "resource_group", "resource_slots", "shared_memory"),
    example_key="small",
    example_create="--resource-slots cpu=1 --resource-slots mem=2g",
    example_update="--shared-memory 256m",
)
AGENT = Entity(
    command="agent",
    path="/agents",
    key="id",
    summary="Machines that run sessions.",
    fields=(
        Field("schedulable", "Whether new sessions may go there.", FieldKind.FLAG),
        Field("resource_group", "Group that it belongs to."),
    ),
    columns=("id", "resource_group", "status", "schedulable", "engine", "slots", "used", "free"),
    can_create=False,
    example_key="gpu-node-1",
    example_update="--resource-group gpu",
)

ENTITIES = (
    DOMAIN, PROJECT, USER, KEYPAIR, KEYPAIR_POLICY, USER_POLICY, PROJECT_POLICY,
    RESOURCE_GROUP, IMAGE, IMAGE_ALIAS, PRESET, AGENT,
)  # fmt: skip
