"""Request bodies for creating and changing sessions, also used by session templates."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bai_services.core.cluster.image_labels import MAX_PREOPEN_PORTS
from bai_services.core.folders.mounts import MAX_SUBPATH
from bai_services.core.sessions.dependencies import MAX_DEPENDENCIES
from bai_services.core.sessions.kernel_group import MAX_KERNELS
from bai_services.core.sessions.lifecycle import MAX_EXTENSION_SECONDS
from bai_services.core.sessions.spec import DEFAULTS, FIELDS, MAX_PRIORITY, SessionSpec, spec_of
from bai_services.manager.sessions.sessions import MAX_WAIT_SECONDS

from ..fields import Body, Count, NameText, ShortText, SlotsInput

MAX_MOUNTS = 32
MAX_VARIABLES = 1000
MAX_BULK = 1000
MAX_AGENTS = 1000


class MountInput(Body):
    vfolder: ShortText
    path: ShortText = ""
    permission: Literal["ro", "rw"] | None = None
    subpath: str = Field(default="", max_length=MAX_SUBPATH)


class SessionRequest(Body):
    """Fields of a new session, common to single requests, bulk requests and templates."""

    name: ShortText | None = None
    project: ShortText | None = None
    image: ShortText | None = None
    type: ShortText = str(DEFAULTS["type"])
    resource_group: NameText | None = None
    preset: NameText | None = None
    resources: SlotsInput = {}
    minimum_resources: SlotsInput = {}
    shared_memory: ShortText | None = None
    mounts: list[MountInput] = Field(default=[], max_length=MAX_MOUNTS)
    environ: dict[str, str] = Field(default={}, max_length=MAX_VARIABLES)
    secret_environ: list[ShortText] = Field(default=[], max_length=MAX_VARIABLES)
    priority: int | None = None
    startup_command: str | None = None
    starts_at: ShortText | None = None
    batch_timeout: ShortText | Count | None = None
    callback_url: str | None = None
    dependencies: list[ShortText] = Field(default=[], max_length=MAX_DEPENDENCIES)
    preopen_ports: list[int] = Field(default=[], max_length=MAX_PREOPEN_PORTS)
    job_priority: int = Field(default=0, ge=0, le=MAX_PRIORITY)
    is_preemptible: bool = True
    reuse: bool = False
    cluster_size: int = Field(default=1, ge=1, le=MAX_KERNELS)
    cluster_mode: NameText = str(DEFAULTS["cluster_mode"])
    reservation: ShortText | None = None
    agent_list: list[NameText] = Field(default=[], max_length=MAX_AGENTS)
    agent_selection: NameText = str(DEFAULTS["agent_selection"])
    allow_fractional_resource_fragmentation: bool | None = None

    def to_spec(self) -> SessionSpec:
        """Return the request as the manager's ``SessionSpec``."""
        return spec_of(self.model_dump(include=set(FIELDS)))


class TemplatedSession(SessionRequest):
    """A session request, optionally based on a template.

    Fields given here override the template's fields; mappings are merged entry by entry.
    """

    template: ShortText | None = None


class OwnedSession(TemplatedSession):
    """``owner``: user name of the owner, by default the caller; only for administrators and the
    Hub.
    """

    owner: NameText | None = None


class NewSession(OwnedSession):
    """``max_wait_seconds``: respond when the session is RUNNING or has ended, or after this time.

    ``hub_server``: only for the Hub, which creates sessions for its users.
    """

    enqueue_only: bool = False
    max_wait_seconds: float = Field(default=0, ge=0, le=MAX_WAIT_SECONDS)
    hub_server: NameText | None = None


class LifetimeExtension(Body):
    seconds: int = Field(gt=0, le=MAX_EXTENSION_SECONDS)


class SessionSize(Body):
    """The slots to change and their new values; the other slots do not change."""

    resources: SlotsInput = Field(min_length=1)


class SessionActivity(Body):
    """``idle_seconds``: time since the last activity; 0: active now."""

    idle_seconds: float = Field(default=0, ge=0, le=MAX_EXTENSION_SECONDS)


class NewSessions(Body):
    """``owner``: user name of the owner of all sessions; only for administrators."""

    owner: NameText | None = None
    sessions: list[TemplatedSession] = Field(min_length=1, max_length=MAX_BULK)


class SessionChange(Body):
    name: ShortText | None = None
    priority: int | None = None
