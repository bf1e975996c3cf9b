"""Custom images, from commits of sessions or builds of recipes: states, names and visibility."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from ..coded_text import refusal
from ..errors import InvalidRequest, InvalidTransition
from ..refusal_texts import RefusalText
from ..user_input import shown
from .image_labels import MAX_LABEL_CHARACTERS, PREFIX
from .image_store import LOCAL_HOST, RegistryAuth, read_auth

REPOSITORY_PREFIX = "custom"
CUSTOM_LABEL = PREFIX + "customized-image."
MAX_COMMIT_LABELS = 32
DEFAULT_MAX_CUSTOM_IMAGES = 3
# Maximum number of failed and cancelled commits of an owner; older ones are deleted.
MAX_ENDED_COMMITS = 100

_NAME = re.compile(r"[A-Za-z0-9_-]{4,32}")
_NOT_IN_REPOSITORY = re.compile(r"[^a-z0-9]+")


class Visibility(StrEnum):
    """The users who may start sessions with a custom image."""

    PRIVATE = "private"  # its owner
    PROJECT = "project"  # the members of its project, in this project
    PUBLIC = "public"  # everyone; only superadmins publish


class CommitStatus(StrEnum):
    PENDING = "pending"
    COMMITTING = "committing"
    BUILDING = "building"
    PUSHING = "pushing"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class CommitEvent(StrEnum):
    COMMIT_REPORTED = "commit-reported"
    BUILD_REPORTED = "build-reported"
    PUSH_REPORTED = "push-reported"
    COMPLETED = "completed"
    BROKEN = "broken"
    CANCELLED = "cancelled"


S, E = CommitStatus, CommitEvent

OPEN_COMMITS = frozenset({S.PENDING, S.COMMITTING, S.BUILDING, S.PUSHING})
# Transitions that are not listed are illegal.
TRANSITIONS: Mapping[tuple[CommitStatus, CommitEvent], CommitStatus] = {
    (S.PENDING, E.COMMIT_REPORTED): S.COMMITTING,
    (S.COMMITTING, E.COMMIT_REPORTED): S.COMMITTING,
    # A commit can begin again while it is pushed, because the agent repeats it after a restart.
    (S.PUSHING, E.COMMIT_REPORTED): S.COMMITTING,
    **{(status, E.BUILD_REPORTED): S.BUILDING for status in OPEN_COMMITS},
    **{(status, E.PUSH_REPORTED): S.PUSHING for status in OPEN_COMMITS},
    **{(status, E.COMPLETED): S.DONE for status in OPEN_COMMITS},
    **{(status, E.BROKEN): S.FAILED for status in OPEN_COMMITS},
    **{(status, E.CANCELLED): S.CANCELLED for status in OPEN_COMMITS},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomImage:
    """A commit of a session or a build of a recipe, and the image that it makes.

    ``image``: the name of the image. ``image_id`` is None until the commit is done.
    ``base_image``: the image of the session. ``percent`` is None while the size is unknown.
    ``message``: the reason of a failure. ``is_publish_requested``: whether the owner asks an
    administrator to publish the image. ``is_built``: whether the image is built from a recipe; the
    session then only reserves the resources of the build.
    """

    id: str
    created_at: datetime
    changed_at: datetime
    name: str
    description: str
    image: str
    image_id: str | None
    base_image: str
    architecture: str
    owner_id: str
    owner: str
    domain: str
    project_id: str
    project: str
    visibility: str
    is_publish_requested: bool
    labels: Mapping[str, str]
    session_id: str
    session_name: str
    is_built: bool
    agent_id: str
    status: str
    percent: int | None
    message: str
    size_bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class BuildLog:
    log: str


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """A commit as the agent executes it. ``max_bytes`` limits the changes; 0: no limit.

    ``recipe``: files of a recipe. If it is not empty, the image is built from these files, with the
    image of the session as base.
    """

    id: str
    session_id: str
    kernel_id: str
    image: str
    labels: Mapping[str, str] = field(default_factory=dict)
    max_bytes: int = 0
    is_pushed: bool = False
    auth: RegistryAuth | None = None
    recipe: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> CommitRequest:
        """Parse a work item.

        Raises
        ------
        InvalidRequest
            If a field is missing or malformed.
        """
        try:
            return cls(
                id=str(item["id"]),
                session_id=str(uuid.UUID(str(item["session_id"]))),
                kernel_id=str(uuid.UUID(str(item["kernel_id"]))),
                image=str(item["image"]),
                labels={str(name): str(text) for name, text in (item.get("labels") or {}).items()},
                max_bytes=int(item.get("max_bytes") or 0),
                is_pushed=bool(item.get("is_pushed")),
                auth=read_auth(item),
                recipe={str(name): str(text) for name, text in (item.get("recipe") or {}).items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidRequest(f"a work item cannot be parsed: {error!r}") from error

    def to_json(self) -> dict[str, Any]:
        """Return the work item without the credentials."""
        return {
            "id": self.id,
            "session_id": self.session_id,
            "kernel_id": self.kernel_id,
            "image": self.image,
            "labels": dict(self.labels),
            "max_bytes": self.max_bytes,
            "is_pushed": self.is_pushed,
            "recipe": dict(self.recipe),
        }


def next_commit_status(status: CommitStatus, event: CommitEvent) -> CommitStatus:
    """Return the status of a commit after ``event``.

    Raises
    ------
    InvalidTransition
        If the event is not valid in that status.
    """
    try:
        return TRANSITIONS[status, event]
    except KeyError:
        problem = refusal(RefusalText.COMMIT_TRANSITION, commit_status=status, event=event)
        raise InvalidTransition(problem, status=status, event=event) from None


def check_custom_name(name: str) -> str:
    """Return ``name`` if it is a valid name of a custom image.

    Raises
    ------
    InvalidRequest
        If the name does not consist of 4 to 32 letters, digits, hyphens and underscores.
    """
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            refusal(RefusalText.CUSTOM_IMAGE_NAME, name=shown(name)),
            field="name",
        )
    return name


def check_commit_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that a user adds to an image, if they are valid.

    Raises
    ------
    InvalidRequest
        If there are too many labels, or if a label is too long, has a control character, or has the
        prefix of the platform's labels.
    """
    if len(labels) > MAX_COMMIT_LABELS:
        raise InvalidRequest(
            refusal(RefusalText.TOO_MANY_LABELS, limit=MAX_COMMIT_LABELS), field="labels"
        )
    for name, text in labels.items():
        is_short = len(name) > 0 and len(name) + len(text) <= MAX_LABEL_CHARACTERS
        if not is_short or not name.isprintable() or "\0" in text:
            raise InvalidRequest(
                refusal(RefusalText.LABEL_NOT_VALID, name=shown(name)), field="labels"
            )
        if name.startswith(PREFIX):
            raise InvalidRequest(
                refusal(RefusalText.LABEL_OF_PLATFORM, name=shown(name), prefix=PREFIX),
                field="labels",
            )
    return dict(labels)


def custom_image_name(host: str, owner: str, name: str, image_id: str) -> str:
    """Return the name of the image of a commit; the id makes it unique.

    ``host`` is the host of the registry, or "" if the image stays on the agent.
    """
    words = [_NOT_IN_REPOSITORY.sub("-", word.lower()).strip("-") or "x" for word in (owner, name)]
    return f"{host or LOCAL_HOST}/{REPOSITORY_PREFIX}/{'/'.join(words)}:{image_id[:8]}"


def labels_of(
    labels: Mapping[str, str], name: str, owner: str, custom_id: str, base: str
) -> dict[str, str]:
    """Return the labels that a commit adds to those of the session's image."""
    own = {"name": name, "owner": owner, "id": custom_id, "base": base}
    return {**labels, **{CUSTOM_LABEL + key: text for key, text in own.items()}}
