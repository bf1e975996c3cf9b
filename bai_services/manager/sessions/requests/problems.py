"""Find further problems of a rejected session request, so that one response reports all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from bai_services.core.cluster.image_labels import check_preopen_ports
from bai_services.core.errors import (
    BaiError,
    Conflict,
    InsufficientResources,
    InvalidRequest,
    NotFound,
    QuotaExceeded,
)
from bai_services.core.folders.mounts import MAX_MOUNTS, MountRequest, check_subpath, mount_path
from bai_services.core.resources import CPU, MEM, ResourceSlots, parse_amount
from bai_services.core.sessions.lifecycle import SessionType
from bai_services.core.sessions.rules import check_environ, check_session_name
from bai_services.core.sessions.spec import SessionSpec
from bai_services.db.sessions.requests import GroupFacts, ImageFacts, Offer

from .choices import (
    choose_group,
    choose_image,
    choose_job_priority,
    choose_preset,
    choose_priority,
    choose_resources,
    session_type,
)

Problem = dict[str, str]
REPORTED = (InvalidRequest, NotFound, Conflict, QuotaExceeded, InsufficientResources)


@dataclass(frozen=True, slots=True)
class NameSources:
    """Sources for looking up the names in a request; ``image`` is the requested or default image.

    ``check_fit`` raises if resources exceed a quota or could never fit in the group.
    """

    offer: Offer
    image: str
    resolve_mount: Callable[[MountRequest], Awaitable[None]]
    check_fit: Callable[[GroupFacts, ImageFacts, ResourceSlots], Awaitable[None]]


class _Problems:
    """Collects problems, at most one per field."""

    def __init__(self) -> None:
        self._messages: dict[str, str] = {}

    @property
    def found(self) -> list[Problem]:
        return [{"field": field, "problem": text} for field, text in self._messages.items()]

    def has(self, field: str) -> bool:
        """Return whether the field, or a part of it such as ``environ.PATH``, has a problem."""
        return any(name == field or name.startswith(f"{field}.") for name in self._messages)

    def add(self, field: str, error: BaiError) -> None:
        self._messages.setdefault(field, error.message)

    def check(self, field: str, check: Callable[[], object]) -> None:
        try:
            check()
        except BaiError as error:
            self.add(field, error)


async def with_all_problems(
    first: BaiError,
    request: SessionSpec,
    creatable: Collection[SessionType],
    lookup: Callable[[], Awaitable[NameSources]],
) -> BaiError:
    """Return ``first`` extended by the other problems that are found in the request.

    ``creatable``: types that the session may have.

    The result has the type of ``first``, which determines the HTTP status. Errors of types other
    than ``REPORTED``, for example a missing permission, are returned unchanged.
    """
    if not isinstance(first, REPORTED):
        return first
    problems = _Problems()
    _check_malformed(request, problems)
    try:
        sources = await lookup()
    except BaiError as error:
        default = "project" if "project" in error.details else "owner"
        problems.add(field_of(error, default), error)
    else:
        await _check_names(request, creatable, sources, problems)
    return _merged(first, problems.found)


def field_of(error: BaiError, default: str = "") -> str:
    """Return the field of the request that an error refers to; ``default`` if unknown."""
    details = error.details
    if details.get("field") == "environ" and details.get("variable"):
        return f"environ.{details['variable']}"
    if details.get("field"):
        return str(details["field"])
    rejected = [details, *details.get("shortages", ()), *details.get("violations", ())]
    slots = (str(each.get("slot") or "") for each in rejected)
    # The slots include the numbers of sessions and kernels, which are not fields of a request.
    slot = next((slot for slot in slots if slot in (CPU, MEM) or "." in slot), "")
    return f"resources.{slot}" if slot else default


def _merged(first: BaiError, problems: list[Problem]) -> BaiError:
    if not any(each["problem"] == first.message for each in problems):
        problems = [{"field": field_of(first), "problem": first.message}, *problems]
    text = first.message
    if not any(each["field"] for each in problems):
        return first
    if len(problems) > 1:
        text = "; ".join(
            f"{each['field']}: {each['problem']}" if each["field"] else each["problem"]
            for each in problems
        )
    return type(first)(text, **{**first.details, "problems": problems})


def _check_malformed(request: SessionSpec, problems: _Problems) -> None:
    name, shared_memory = request.name, request.shared_memory
    if name is not None:
        problems.check("name", lambda: check_session_name(name))
    for slot, text in request.resources.items():
        problems.check(f"resources.{slot}", _amount(slot, text))
    if shared_memory is not None:
        problems.check("shared_memory", _amount(MEM, shared_memory))
    for variable, value in request.environ.items():
        problems.check(f"environ.{variable}"[:80], _variable(variable, value))
    if not problems.has("environ"):
        problems.check("environ", lambda: check_environ(request.environ))
    problems.check("preopen_ports", lambda: check_preopen_ports(request.preopen_ports, {}))


async def _check_names(
    request: SessionSpec,
    creatable: Collection[SessionType],
    sources: NameSources,
    problems: _Problems,
) -> None:
    offer = sources.offer
    kind = SessionType.INTERACTIVE
    group: GroupFacts | None = None
    image: ImageFacts | None = None
    try:
        kind = session_type(request.type, creatable)
    except BaiError as error:
        problems.add("type", error)
    try:
        group = choose_group(offer.groups, request.resource_group, kind)
    except BaiError as error:
        problems.add("resource_group", error)
    try:
        image = choose_image(offer.images, sources.image)
    except BaiError as error:
        problems.add("image", error)
    if group is not None:
        await _check_amounts(request, sources, group, image, problems)
    if image is not None and not problems.has("preopen_ports"):
        labels = image.labels
        problems.check("preopen_ports", lambda: check_preopen_ports(request.preopen_ports, labels))
    problems.check("priority", lambda: choose_priority(request.priority, offer.keypair))
    problems.check("job_priority", lambda: choose_job_priority(request.job_priority))
    for number, mount in enumerate(request.mounts[:MAX_MOUNTS]):
        await _check_mount(number, mount, sources, problems)


async def _check_amounts(
    request: SessionSpec,
    sources: NameSources,
    group: GroupFacts,
    image: ImageFacts | None,
    problems: _Problems,
) -> None:
    try:
        preset = choose_preset(sources.offer.presets, request.preset, group.name)
    except BaiError as error:
        problems.add("preset", error)
        return
    if image is None:
        return
    # The malformed amounts have been reported; check the other amounts.
    resources = {
        slot: text
        for slot, text in request.resources.items()
        if not problems.has(f"resources.{slot}")
    }
    shared_memory = None if problems.has("shared_memory") else request.shared_memory
    # If the resources do not fit with the shared memory, also check them without shared memory.
    for each in dict.fromkeys((shared_memory, None)):
        try:
            slots, _ = choose_resources(resources, each, preset, image)
            await sources.check_fit(group, image, slots)
            return
        except BaiError as error:
            problems.add(field_of(error, "resources"), error)


async def _check_mount(
    number: int, mount: MountRequest, sources: NameSources, problems: _Problems
) -> None:
    field = f"mounts.{number}"
    problems.check(f"{field}.path", lambda: mount_path("folder", mount.path))
    problems.check(f"{field}.subpath", lambda: check_subpath(mount.subpath))
    if problems.has(field):
        # Also check the folder, without the invalid paths.
        mount = MountRequest(mount.vfolder, permission=mount.permission)
    try:
        await sources.resolve_mount(mount)
    except BaiError as error:
        problems.add(f"{field}.vfolder", error)


def _amount(slot: str, text: str) -> Callable[[], object]:
    return lambda: parse_amount(slot, text)


def _variable(name: str, value: str) -> Callable[[], object]:
    return lambda: check_environ({name: value})
