"""Labels of session images: apps, resource limits and features."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ..errors import InvalidRequest
from ..resources import MEM, ResourceSlots, format_amount, parse_amount
from ..user_input import read_whole

PREFIX = "ai.backend."
MIN_CUDA = PREFIX + "min-cuda"
# Absolute path of the program that runs in a session before it is suspended or preempted.
ON_PREEMPT = PREFIX + "on-preempt"

# Ports that the platform uses in a session: for the interpreter, the remote shell, the terminal.
RESERVED_PORTS = frozenset({2000, 2001, 2002, 2003, 2200, 7681})
# Ports on which an app may listen; privileged ports (below 1024) are excluded.
LOWEST_PORT, HIGHEST_PORT = 1025, 65534
# Port of the session's Jupyter server in a container.
SERVER_PORT = 8888
MAX_PREOPEN_PORTS = 32

FEATURES = frozenset({"query", "batch", "tty", "uid-match", "user-input", "operation", "private"})
MAX_LABELS = 256
# Maximum total length of a label's name and value, and maximum length of a service-ports text.
MAX_LABEL_CHARACTERS = 4096

_SHARED_MEMORY = "shmem"
_APP_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?", re.IGNORECASE)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Matches the commas between entries, but not those in brackets: "a:http:[8000,8001],b:tcp:9000".
_BETWEEN_PORTS = re.compile(r",(?![^\[]*\])")


class Protocol(StrEnum):
    HTTP = "http"
    TCP = "tcp"
    PREOPEN = "preopen"  # the user starts the program that listens; the platform does not
    VNC = "vnc"
    RDP = "rdp"


class ImageRole(StrEnum):
    COMPUTE = "COMPUTE"
    INFERENCE = "INFERENCE"
    SYSTEM = "SYSTEM"


@dataclass(frozen=True, slots=True)
class ServicePort:
    """An app of an image and the ports on which it listens inside the session."""

    name: str
    protocol: Protocol
    ports: tuple[int, ...]
    is_inference: bool = False


@dataclass(frozen=True, slots=True)
class ImageLabels:
    """The parsed labels of an image; missing labels have the default values."""

    service_ports: tuple[ServicePort, ...] = ()
    min_slots: ResourceSlots = field(default_factory=ResourceSlots)
    max_slots: ResourceSlots = field(default_factory=ResourceSlots)
    preferred_slots: ResourceSlots = field(default_factory=ResourceSlots)
    preferred_shared_memory_bytes: int | None = None  # None: no label sets it
    features: frozenset[str] = frozenset()
    role: ImageRole = ImageRole.COMPUTE
    runtime_type: str = ""
    runtime_path: str = ""
    base_distro: str = ""
    accelerators: tuple[str, ...] = ()
    corecount_variables: tuple[str, ...] = ()
    min_cuda: str = ""  # minimum CUDA version that the driver must support, such as "12.4"

    @property
    def apps(self) -> list[str]:
        """The names of the apps, in the order of the label."""
        return [port.name for port in self.service_ports]

    @property
    def is_private(self) -> bool:
        """Whether the image is omitted from the lists from which users choose."""
        return "private" in self.features


def parse_labels(labels: Mapping[str, str]) -> ImageLabels:
    """Parse an image's labels; ignore labels without ``PREFIX``.

    Raises
    ------
    InvalidRequest
        If there are too many labels, a label is too long or contains a NUL, a label with ``PREFIX``
        is malformed or unknown, or labels contradict each other (for example, a minimum above its
        maximum).
    """
    ours = {
        name.removeprefix(PREFIX): text for name, text in labels.items() if name.startswith(PREFIX)
    }
    _check_sizes(labels)
    _check_known(ours)
    if ours.get("kernelspec", "1") != "1":
        raise _invalid("kernelspec", ours["kernelspec"], "only 1 is supported")
    slots, shared_memory = _slots(ours)
    _check_range(slots["min"], slots["preferred"], slots["max"])
    return ImageLabels(
        service_ports=_with_endpoints(ours),
        min_slots=slots["min"],
        max_slots=slots["max"],
        preferred_slots=slots["preferred"],
        preferred_shared_memory_bytes=shared_memory,
        features=_features(ours.get("features", "")),
        role=_role(ours.get("role", ImageRole.COMPUTE)),
        runtime_type=ours.get("runtime-type", ""),
        runtime_path=ours.get("runtime-path", ""),
        base_distro=ours.get("base-distro", ""),
        accelerators=tuple(_words(ours.get("accelerators", ""))),
        corecount_variables=_variables(ours.get("envs.corecount", "")),
        min_cuda=_version("min-cuda", ours.get("min-cuda", "")),
    )


def parse_new_labels(labels: Mapping[str, str]) -> ImageLabels:
    """Parse the labels of an image that is created or changed, like ``parse_labels``.

    Raises
    ------
    InvalidRequest
        Also if an app has the port of the Jupyter server. ``parse_labels`` accepts this port,
        because images that earlier versions stored may have it.
    """
    facts = parse_labels(labels)
    for service in facts.service_ports:
        if SERVER_PORT in service.ports:
            raise _invalid(
                "service-ports",
                labels[PREFIX + "service-ports"],
                f"port {SERVER_PORT} is used by the session itself",
            )
    return facts


def parse_service_ports(text: str) -> tuple[ServicePort, ...]:
    """Parse a comma-separated list of ``name:protocol:port`` or ``name:protocol:[port,port]``.

    Example: ``jupyterlab:http:8090,triton:http:[8000,8001]``. Entries with the protocol ``pty`` are
    skipped, because the platform provides the terminal.

    Raises
    ------
    InvalidRequest
        If the text is too long, an entry is malformed, an app or a port is a duplicate, or a port
        is reserved or outside 1025 to 65534.
    """
    if len(text) > MAX_LABEL_CHARACTERS:
        raise _invalid("service-ports", text, f"it has more than {MAX_LABEL_CHARACTERS} characters")
    services: list[ServicePort] = []
    for entry in filter(None, (part.strip() for part in _BETWEEN_PORTS.split(text))):
        name, _, rest = entry.partition(":")
        protocol, _, ports = rest.partition(":")
        if protocol == "pty":
            continue
        if not _APP_NAME.fullmatch(name) or protocol not in set(Protocol):
            raise _invalid("service-ports", entry, f"write NAME:{'|'.join(Protocol)}:PORT")
        services.append(ServicePort(name, Protocol(protocol), _ports(entry, ports)))
    _check_unique([service.name for service in services], "app")
    _check_unique([number for service in services for number in service.ports], "port")
    return tuple(services)


def check_preopen_ports(ports: Sequence[int], labels: Mapping[str, str]) -> tuple[int, ...]:
    """Validate and return the ports that a user declares for a session.

    Raises
    ------
    InvalidRequest
        If there are more than 32 ports, or a port is a duplicate, reserved, used by an app of the
        image or outside 1025 to 65534.
    """
    if len(ports) > MAX_PREOPEN_PORTS:
        raise _invalid_port(
            f"{len(ports)} ports were requested; at most {MAX_PREOPEN_PORTS} are allowed"
        )
    app_of_port = {
        number: service.name
        for service in parse_service_ports(labels.get(PREFIX + "service-ports", ""))
        for number in service.ports
    }
    for number in ports:
        if not LOWEST_PORT <= number <= HIGHEST_PORT:
            raise _invalid_port(f"port {number}: ports must be {LOWEST_PORT} to {HIGHEST_PORT}")
        if number in RESERVED_PORTS or number == SERVER_PORT:
            raise _invalid_port(f"port {number} is used by the session itself; choose another")
        if number in app_of_port:
            raise _invalid_port(
                f"port {number} is used by the image's app {app_of_port[number]}; choose another"
            )
        if ports.count(number) > 1:
            raise _invalid_port(f"duplicate port {number}")
    return tuple(ports)


def _invalid_port(reason: str) -> InvalidRequest:
    return InvalidRequest(reason, field="preopen_ports")


def _ports(entry: str, text: str) -> tuple[int, ...]:
    is_list = text.startswith("[") and text.endswith("]")
    numbers = []
    for word in (text[1:-1] if is_list else text).split(","):
        number = read_whole(word) or 0
        if not LOWEST_PORT <= number <= HIGHEST_PORT:
            raise _invalid("service-ports", entry, f"ports must be {LOWEST_PORT} to {HIGHEST_PORT}")
        if number in RESERVED_PORTS:
            raise _invalid("service-ports", entry, f"port {number} is reserved")
        numbers.append(number)
    return tuple(numbers)


def _with_endpoints(ours: Mapping[str, str]) -> tuple[ServicePort, ...]:
    """Return the service ports; mark those named in ``endpoint-ports`` as inference endpoints."""
    ports = parse_service_ports(ours.get("service-ports", ""))
    endpoints = set(_words(ours.get("endpoint-ports", "")))
    unknown = endpoints - {port.name for port in ports}
    if unknown:
        raise _invalid("endpoint-ports", ",".join(sorted(unknown)), "no service port has this name")
    return tuple(
        ServicePort(p.name, p.protocol, p.ports, is_inference=p.name in endpoints) for p in ports
    )


def preferred_shared_memory(labels: Mapping[str, str]) -> int | None:
    """Return the value of the label ``resource.preferred.shmem`` in bytes; None if it is missing.

    ``labels`` are the labels of a registered image, so they are valid.
    """
    text = labels.get(f"{PREFIX}resource.preferred.{_SHARED_MEMORY}")
    return None if text is None else parse_amount(MEM, text)


def _slots(ours: Mapping[str, str]) -> tuple[dict[str, ResourceSlots], int | None]:
    """Return the ``min``, ``max`` and ``preferred`` resources, and the preferred shared memory."""
    amounts: dict[str, dict[str, int]] = {"min": {}, "max": {}, "preferred": {}}
    shared_memory = None
    for name, text in ours.items():
        if not name.startswith("resource."):
            continue
        _, bound, slot = name.split(".", 2)
        if bound == "preferred" and slot == _SHARED_MEMORY:
            shared_memory = parse_amount(MEM, text)
        else:
            amounts[bound][slot] = parse_amount(slot, text)
    return {bound: ResourceSlots(slots) for bound, slots in amounts.items()}, shared_memory


def _check_range(low: ResourceSlots, preferred: ResourceSlots, high: ResourceSlots) -> None:
    check_bounds(low, high)
    for slot, amount in preferred.items():
        if amount < low.get(slot, 0) or amount > high.get(slot, amount):
            raise InvalidRequest(
                f"the preferred amount of {slot} is not between its minimum and its maximum",
                slot=slot,
            )


def check_bounds(low: ResourceSlots, high: ResourceSlots) -> None:
    """Check that no minimum exceeds its maximum; a slot missing from ``high`` has no maximum.

    Raises
    ------
    InvalidRequest
        If a minimum exceeds the maximum of its slot. The message names the slot and both amounts.
    """
    for slot, maximum in high.items():
        minimum = low.get(slot, 0)
        if minimum > maximum:
            raise InvalidRequest(
                f"the minimum {slot}={format_amount(slot, minimum)} is above the maximum "
                f"{slot}={format_amount(slot, maximum)}",
                slot=slot,
            )


_KNOWN = frozenset(
    {
        "kernelspec",
        "features",
        "base-distro",
        "runtime-type",
        "runtime-path",
        "role",
        "envs.corecount",
        "accelerators",
        "service-ports",
        "endpoint-ports",
        "model-path",
        "model-format",
        "internal.block-service-ports",
        "min-cuda",
    }
)


def _check_known(ours: Mapping[str, str]) -> None:
    for name, text in ours.items():
        is_amount = re.fullmatch(r"resource\.(min|max|preferred)\..+", name) is not None
        if name not in _KNOWN and not is_amount and not name.startswith("customized-image."):
            raise _invalid(name, text, "unknown label")


def _check_sizes(labels: Mapping[str, str]) -> None:
    if len(labels) > MAX_LABELS:
        raise InvalidRequest(f"an image can have at most {MAX_LABELS} labels, not {len(labels)}")
    for name, text in labels.items():
        if len(name) + len(text) > MAX_LABEL_CHARACTERS or "\0" in name + text:
            raise InvalidRequest(
                f"label {name[:64]!r} is longer than {MAX_LABEL_CHARACTERS} characters or contains "
                "a NUL",
                label=name[:64],
            )


def _features(text: str) -> frozenset[str]:
    words = frozenset(_words(text))
    if unknown := words - FEATURES:
        raise _invalid(
            "features", " ".join(sorted(unknown)), f"use one of: {', '.join(sorted(FEATURES))}"
        )
    return words


def _role(text: str) -> ImageRole:
    try:
        return ImageRole(text)
    except ValueError:
        raise _invalid("role", text, f"use one of: {', '.join(ImageRole)}") from None


def _variables(text: str) -> tuple[str, ...]:
    words = tuple(_words(text))
    for word in words:
        if not _VARIABLE.fullmatch(word):
            raise _invalid("envs.corecount", word, "it is not a valid variable name")
    return words


def _version(label: str, text: str) -> str:
    if text and not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3}){0,2}", text):
        raise _invalid(label, text, "it is not a version such as 12.4")
    return text


def _words(text: str) -> list[str]:
    return [word for word in re.split(r"[,\s]+", text) if word]


def _check_unique(values: Sequence[str | int], what: str) -> None:
    duplicates = sorted(str(value) for value, count in Counter(values).items() if count > 1)
    if duplicates:
        raise _invalid("service-ports", ",".join(duplicates), f"duplicate {what}")


def _invalid(label: str, text: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"label {PREFIX}{label}={text[:200]!r}: {reason}", label=PREFIX + label)
