"""Images on agents: pulls ahead of the first session, and eviction of unused images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from ..errors import InvalidRequest


class PullStatus(StrEnum):
    PENDING = "pending"
    PULLING = "pulling"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN_PULLS = frozenset({PullStatus.PENDING, PullStatus.PULLING})
# Minimum time between the last use of an image and its eviction: the spawner may be about to start
# a container.
MIN_UNUSED_SECONDS = 3600
# Placeholder for the registry in the names of images that exist on one agent only. No registry is
# queried for these images.
LOCAL_HOST = "localhost"


@dataclass(frozen=True, slots=True)
class ImagePull:
    """The request to pull an image to an agent, and its progress.

    ``percent`` is None while the size is unknown. ``message`` is the reason for a failure.
    """

    id: str
    created_at: datetime
    changed_at: datetime
    image_id: str
    image: str
    agent_id: str
    resource_group: str
    status: str
    percent: int | None
    message: str
    requested_by: str


@dataclass(frozen=True, slots=True)
class ImageOnAgent:
    """An image on an agent.

    ``is_current``: the image has the registered digest; None if either digest is unknown.
    """

    agent_id: str
    resource_group: str
    status: str
    digest: str
    is_current: bool | None


@dataclass(frozen=True, slots=True)
class AgentImages:
    """The images that an agent has reported; ``digests`` has "" for an unknown digest."""

    agent_id: str
    resource_group: str
    engine: str
    architecture: str
    status: str
    digests: dict[str, str]


@dataclass(frozen=True, slots=True)
class RegistryAuth:
    """Credentials for the registry of an image, for the engine that pulls the image."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class StoredImage:
    """An image on the disk of a machine.

    ``last_used`` is in seconds since the epoch; None for an image that bai-hub has never used.
    ``is_pulled``: the image is in a registry, so it can be pulled again.
    """

    id: str
    size_bytes: int
    last_used: float | None
    has_containers: bool
    names: Sequence[str] = ()
    is_pulled: bool = False

    @property
    def is_local(self) -> bool:
        """Whether this is a custom image without a registry.

        With containerd as image store, such an image also has a digest, although it is in no
        registry.
        """
        return any(name.startswith(f"{LOCAL_HOST}/") for name in self.names)


@dataclass(frozen=True, slots=True)
class PruneRequest:
    """The request to an agent to remove its unused images, or only to list them.

    ``keep``: names of images that must remain.
    """

    id: str
    unused_seconds: int
    keep: frozenset[str]
    is_dry_run: bool

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> PruneRequest:
        """Parse a work item.

        Raises
        ------
        InvalidRequest
            If a field is missing or malformed.
        """
        try:
            keep = frozenset(map(str, item["keep"]))
            return cls(str(item["id"]), int(item["unused_seconds"]), keep, bool(item["is_dry_run"]))
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidRequest(f"a work item cannot be parsed: {error!r}") from error


@dataclass(frozen=True, slots=True)
class PrunedImage:
    """An unused image on an agent. ``is_removed``: false in a dry run, or if it was used again."""

    agent_id: str
    resource_group: str
    image: str
    size_bytes: int
    last_used_at: datetime
    is_removed: bool


@dataclass(frozen=True, slots=True)
class PruneReport:
    """The unused images of some agents. ``silent_agents``: agents that have not reported, for
    example because their engine does not respond.
    """

    is_dry_run: bool
    images: Sequence[PrunedImage]
    silent_agents: Sequence[str]


def read_auth(item: Mapping[str, Any]) -> RegistryAuth | None:
    """Return the credentials in a work item; None if there are no credentials."""
    auth = item.get("registry_auth")
    if not isinstance(auth, dict):
        return None
    return RegistryAuth(str(auth.get("username") or ""), str(auth.get("password") or ""))


def digest_state(registered: str, on_agent: str) -> bool | None:
    """Return whether an agent has the registered digest; None if either digest is unknown."""
    return registered == on_agent if registered and on_agent else None


def lacks(agent: AgentImages, image: str, architecture: str, digest: str) -> bool:
    """Return whether an agent can run an image, but does not have its version ``digest``."""
    if agent.engine != "docker" or agent.architecture != architecture:
        return False
    if image not in agent.digests:
        return True
    return digest_state(digest, agent.digests[image]) is False


def choose_evictions(
    images: Iterable[StoredImage], used_bytes: int, limit_bytes: int, now: float
) -> Sequence[str]:
    """Return the ids of the images to remove, least recently used first.

    Images are removed until at most ``limit_bytes`` are used. Images are kept if they have
    containers, were used within ``MIN_UNUSED_SECONDS``, were never used by bai-hub, or are custom
    images that exist only on this machine. Images share layers, so the removal can free less than
    estimated; measure again afterwards.
    """
    candidates = [
        (image.last_used, image.id, image.size_bytes)
        for image in images
        if image.last_used is not None
        and not image.has_containers
        and now - image.last_used >= MIN_UNUSED_SECONDS
        and not image.is_local
    ]
    chosen: list[str] = []
    for _, image_id, size in sorted(candidates):
        if used_bytes <= limit_bytes:
            break
        chosen.append(image_id)
        used_bytes -= size
    return chosen


def choose_unused(
    images: Iterable[StoredImage], request: PruneRequest, now: float
) -> Sequence[StoredImage]:
    """Return the images that a request lists or removes, least recently used first.

    Images remain if they have containers, cannot be pulled again, have a name in ``keep``, or were
    never used by bai-hub.
    """
    unused_seconds = max(request.unused_seconds, MIN_UNUSED_SECONDS)
    return sorted(
        (
            image
            for image in images
            if image.last_used is not None
            and now - image.last_used >= unused_seconds
            and not image.has_containers
            and image.is_pulled
            and not image.is_local
            and request.keep.isdisjoint(image.names)
        ),
        key=lambda image: (image.last_used, image.id),
    )
