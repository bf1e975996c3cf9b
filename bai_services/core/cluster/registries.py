"""Image registries: kinds, addresses, names of their images, and the states of a scan."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from urllib.parse import urlsplit

from ..coded_text import refusal
from ..errors import InvalidRequest, InvalidTransition
from ..refusal_texts import RefusalText
from ..user_input import shown, without_user_info
from .model import canonical_image

MAX_REGISTRIES = 100
MAX_REPOSITORIES = 500
MAX_PATTERNS = 32
MAX_ENTRY_CHARACTERS = 255
MAX_CERTIFICATE_CHARACTERS = 65_536
MIN_RESCAN_SECONDS = 300
MAX_RESCAN_SECONDS = 30 * 24 * 3600
# Registry of image names without a registry, such as ``python:3.12``.
DOCKER_HUB = "docker.io"
DOCKER_HUB_API = "https://registry-1.docker.io"

_DOCKER_HUB_HOSTS = frozenset({DOCKER_HUB, "index.docker.io", "registry-1.docker.io"})
_URL = re.compile(r"https?://[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?::[0-9]{1,5})?")
_REPOSITORY = re.compile(
    r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*"
)


class RegistryKind(StrEnum):
    DOCKER = "docker"
    HARBOR = "harbor"
    GHCR = "ghcr"
    GITLAB = "gitlab"
    NGC = "ngc"
    ECR = "ecr"


@dataclass(frozen=True, slots=True)
class KindFacts:
    """Properties of a kind of registry.

    ``url``: the default URL; "" if each installation has its own URL. ``username``: the user name
    that all accounts share; "" if each account has its own user name. ``has_catalog``: whether a
    scan can list the repositories; otherwise the field ``repositories`` of the registry must list
    them.
    """

    url: str = ""
    username: str = ""
    has_catalog: bool = True


KINDS: Mapping[RegistryKind, KindFacts] = {
    RegistryKind.DOCKER: KindFacts(),
    RegistryKind.HARBOR: KindFacts(),
    RegistryKind.GHCR: KindFacts(url="https://ghcr.io", has_catalog=False),
    RegistryKind.GITLAB: KindFacts(url="https://registry.gitlab.com", has_catalog=False),
    RegistryKind.NGC: KindFacts(url="https://nvcr.io", username="$oauthtoken", has_catalog=False),
    RegistryKind.ECR: KindFacts(username="AWS"),
}


class ScanStatus(StrEnum):
    NEVER = "never"
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ScanEvent(StrEnum):
    REQUESTED = "requested"
    BEGUN = "begun"
    COMPLETED = "completed"
    BROKEN = "broken"
    CANCELLED = "cancelled"


S, E = ScanStatus, ScanEvent

OPEN_SCANS = frozenset({S.QUEUED, S.RUNNING})
# Transitions that are not listed are illegal.
TRANSITIONS: Mapping[tuple[ScanStatus, ScanEvent], ScanStatus] = {
    **{(status, E.REQUESTED): S.QUEUED for status in set(ScanStatus) - OPEN_SCANS},
    (S.QUEUED, E.BEGUN): S.RUNNING,
    (S.RUNNING, E.BEGUN): S.RUNNING,  # repeated after a restart of the manager
    (S.RUNNING, E.COMPLETED): S.DONE,
    (S.RUNNING, E.BROKEN): S.FAILED,
    **{(status, E.CANCELLED): S.CANCELLED for status in OPEN_SCANS},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRegistry:
    """A registry from which images are found and pulled; its password is never returned.

    ``host`` is the part of image names that refers to the registry. ``repositories``: repositories
    to scan; empty: all that the registry lists. ``patterns``: patterns of ``repository:tag``;
    empty: all tags. ``rescan_seconds``: time between the end of a scan and the next one; 0: no
    automatic scans. ``activates_images``: images that a scan registers are active at once.
    ``labelled_only``: scans ignore images without labels of the platform. ``is_global``: every
    project may use the images; otherwise only ``allowed_projects``, as ``domain/name``.

    The fields ``scan_*`` describe the last scan:

    - ``scan_tags``: number of tags that match the patterns
    - ``scan_checked``: number of these tags that were checked
    - ``scan_new``: number of new images
    - ``scan_changed``: number of registered images with a new digest
    - ``scan_skipped``: number of tags that were ignored or could not be read
    - ``scan_removed``: number of images that were deleted because their tags no longer exist
    - ``scan_problem``: why the scan, or a tag, failed
    """

    id: str
    created_at: datetime
    name: str
    kind: str
    url: str
    host: str
    username: str
    has_password: bool
    ca_certificate: str
    repositories: Sequence[str]
    patterns: Sequence[str]
    rescan_seconds: int
    is_enabled: bool
    activates_images: bool
    labelled_only: bool
    is_global: bool
    allowed_projects: Sequence[str]
    scan_status: str
    scan_requested_by: str
    scan_started_at: datetime | None
    scan_ended_at: datetime | None
    scan_tags: int
    scan_checked: int
    scan_new: int
    scan_changed: int
    scan_skipped: int
    scan_removed: int
    scan_problem: str


def next_scan_status(status: ScanStatus, event: ScanEvent) -> ScanStatus:
    """Return the status of a scan after ``event``.

    Raises
    ------
    InvalidTransition
        If the event is not valid in that status.
    """
    try:
        return TRANSITIONS[status, event]
    except KeyError:
        problem = refusal(RefusalText.SCAN_TRANSITION, scan_status=status, event=event)
        raise InvalidTransition(problem, status=status, event=event) from None


def is_scan_due(registry: ImageRegistry, now: datetime) -> bool:
    """Return whether the interval has passed since the last scan of an enabled registry."""
    if not registry.is_enabled or not registry.rescan_seconds:
        return False
    if registry.scan_status in OPEN_SCANS:
        return False
    ended = registry.scan_ended_at
    return ended is None or now - ended >= timedelta(seconds=registry.rescan_seconds)


def check_registry_url(url: str) -> tuple[str, str]:
    """Return the URL (scheme, host and optional port) and the host of a registry.

    Raises
    ------
    InvalidRequest
        If the URL has another form.
    """
    text = url.strip().rstrip("/").lower()
    if len(text) > MAX_ENTRY_CHARACTERS or not _URL.fullmatch(text):
        raise InvalidRequest(
            refusal(RefusalText.REGISTRY_URL, url=shown(without_user_info(url))),
            field="url",
        )
    host = text.partition("://")[2]
    port = host.partition(":")[2]
    if port and not 1 <= int(port) <= 65_535:
        raise InvalidRequest(refusal(RefusalText.NO_PORT, port=port), field="url")
    return text, DOCKER_HUB if host in _DOCKER_HUB_HOSTS else host


def api_url(url: str) -> str:
    """Return the URL at which a registry offers the distribution protocol."""
    is_docker_hub = urlsplit(url).netloc in _DOCKER_HUB_HOSTS
    return DOCKER_HUB_API if is_docker_hub else url


def check_repositories(repositories: Sequence[str], kind: RegistryKind) -> list[str]:
    """Return the repositories of a registry object, sorted, without duplicates.

    Raises
    ------
    InvalidRequest
        If a name is malformed, or the kind has no list of repositories and none is given.
    """
    for name in repositories:
        if len(name) > MAX_ENTRY_CHARACTERS or not _REPOSITORY.fullmatch(name):
            raise InvalidRequest(
                refusal(RefusalText.NOT_A_REPOSITORY, name=shown(name)), field="repositories"
            )
    if not repositories and not KINDS[kind].has_catalog:
        raise InvalidRequest(
            refusal(RefusalText.REGISTRY_WITHOUT_LIST, kind=kind),
            field="repositories",
        )
    return sorted(set(repositories))


def check_patterns(patterns: Sequence[str]) -> list[str]:
    """Return patterns of ``repository:tag``; append ``:*`` to a pattern without a colon.

    Raises
    ------
    InvalidRequest
        If a pattern is empty, too long, or has a space or control character.
    """
    checked = []
    for pattern in patterns:
        is_readable = pattern.isprintable() and " " not in pattern
        if not pattern or len(pattern) > MAX_ENTRY_CHARACTERS or not is_readable:
            raise InvalidRequest(
                refusal(RefusalText.NOT_AN_IMAGE_PATTERN, pattern=shown(pattern)), field="patterns"
            )
        checked.append(pattern if ":" in pattern else f"{pattern}:*")
    return list(dict.fromkeys(checked))


def matches(repository: str, tag: str, patterns: Sequence[str]) -> bool:
    """Return whether a tag matches one of the patterns, or there are no patterns."""
    reference = f"{repository}:{tag}"
    return not patterns or any(fnmatch.fnmatchcase(reference, pattern) for pattern in patterns)


def repository_may_match(repository: str, patterns: Sequence[str]) -> bool:
    """Return whether some tag of the repository could match a pattern; otherwise its tags need not
    be listed.
    """
    names = [pattern.rpartition(":")[0] for pattern in patterns]
    # A wildcard before the colon may also match a colon, so compare only the literal beginning.
    starts = [re.split(r"[*?\[]", name, maxsplit=1)[0] for name in names]
    return not patterns or any(repository.startswith(start) for start in starts)


def registry_host(image: str) -> str:
    """Return the host of the registry to which an image name refers."""
    first, slash, _ = image.partition("/")
    is_host = bool(slash) and ("." in first or ":" in first or first == "localhost")
    host = first.lower()
    return DOCKER_HUB if not is_host or host in _DOCKER_HUB_HOSTS else host


def is_in_scope(registry: ImageRegistry, repository: str, tag: str) -> bool:
    """Return whether a scan of the registry reads this tag, if it exists."""
    is_named = not registry.repositories or repository in registry.repositories
    return is_named and matches(repository, tag, registry.patterns)


def repository_and_tag(host: str, name: str) -> tuple[str, str]:
    """Return repository and tag of the name of a registered image (see ``image_name``)."""
    repository, _, tag = name.removeprefix(f"{host}/").rpartition(":")
    if host == DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    return repository, tag


def image_name(host: str, repository: str, tag: str) -> str:
    """Return the name under which an image of a registry is registered.

    Raises
    ------
    InvalidRequest
        If the name is too long or malformed.
    """
    if host == DOCKER_HUB:
        # Omit the host and ``library/``, as in Docker's own list of images.
        return canonical_image(f"{repository.removeprefix('library/')}:{tag}")
    return canonical_image(f"{host}/{repository}:{tag}")
