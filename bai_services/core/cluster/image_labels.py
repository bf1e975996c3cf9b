"""Labels of a session image: its apps, resource bounds and features."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ..errors import InvalidRequest
from ..resources import MEM, ResourceSlots, parse_amount
from ..user_input import read_whole

PREFIX = "ai.backend."
MIN_CUDA = PREFIX + "min-cuda"

# Inside a session these belong to the platform: interpreter, remote shell, terminal.
RESERVED_PORTS = frozenset({2000, 2001, 2002, 2003, 2200, 7681})
LOWEST_PORT, HIGHEST_PORT = 1025, 65534
# Port of the session's own server in a container.
SERVER_PORT = 8888
MAX_PREOPEN_PORTS = 32

FEATURES = frozenset({"query", "batch", "tty", "uid-match", "user-input", "operation", "private"})
MAX_LABELS = 256
MAX_LABEL_TEXT = 4096

_SHARED_MEMORY = "shmem"
_APP_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?", re.IGNORECASE)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# A comma that is not inside brackets: "a:http:[8000,8001],b:tcp:9000".
_BETWEEN_PORTS = re.compile(r",(?![^\[]*\])")


class Protocol(StrEnum):
    HTTP = "http"
    TCP = "tcp"
    PREOPEN = "preopen"  # already listening when the session starts; nothing is started
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
class ImageFacts:
    """Everything that labels declare; missing labels give empty values.

    ``preferred_shared_memory_bytes`` is None where no label gives it.
    """

    service_ports: tuple[ServicePort, ...] = ()
    min_slots: ResourceSlots = field(default_factory=ResourceSlots)
    max_slots: ResourceSlots = field(default_factory=ResourceSlots)
    preferred_slots: ResourceSlots = field(default_factory=ResourceSlots)
    preferred_shared_memory_bytes: int | None = None
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
        """The names of the apps, in the label's order."""
        return [port.name for port in self.service_ports]

    @property
    def is_private(self) -> bool:
        """Whether the image is hidden where users choose one."""
        return "private" in self.features


def parse_labels(labels: Mapping[str, str]) -> ImageFacts:
    """Parse an image's labels; labels of other programs are ignored.

    Raises
    ------
    InvalidRequest
        If one of our labels is malformed, unknown, or contradicts another: a
        minimum above its maximum, two apps on one port.
    """
    mine = {
        name.removeprefix(PREFIX): text for name, text in labels.items() if name.startswith(PREFIX)
    }
    _check_sizes(labels)
    _check_known(mine)
    if mine.get("kernelspec", "1") != "1":
        raise _wrong("kernelspec", mine["kernelspec"], "only 1 is known")
    slots, shared_memory = _slots(mine)
    _check_range(slots["min"], slots["preferred"], slots["max"])
    return ImageFacts(
        service_ports=_with_endpoints(mine),
        min_slots=slots["min"],
        max_slots=slots["max"],
        preferred_slots=slots["preferred"],
        preferred_shared_memory_bytes=shared_memory,
        features=_features(mine.get("features", "")),
        role=_role(mine.get("role", ImageRole.COMPUTE)),
        runtime_type=mine.get("runtime-type", ""),
        runtime_path=mine.get("runtime-path", ""),
        base_distro=mine.get("base-distro", ""),
        accelerators=tuple(_words(mine.get("accelerators", ""))),
        corecount_variables=_variables(mine.get("envs.corecount", "")),
        min_cuda=_version("min-cuda", mine.get("min-cuda", "")),
    )


def parse_service_ports(text: str) -> tuple[ServicePort, ...]:
    """Parse ``name:protocol:port`` or ``name:protocol:[port,port]``, comma separated.

    ``jupyterlab:http:8090,triton:http:[8000,8001]``. ``pty`` entries are left out.

    Raises
    ------
    InvalidRequest
        If an entry is malformed, a name or a port is repeated, or a port is
        outside 1025 to 65534 or reserved.
    """
    if len(text) > MAX_LABEL_TEXT:
        raise _wrong("service-ports", text, f"it has more than {MAX_LABEL_TEXT} characters")
    found: list[ServicePort] = []
    for entry in filter(None, (part.strip() for part in _BETWEEN_PORTS.split(text))):
        name, _, rest = entry.partition(":")
        protocol, _, ports = rest.partition(":")
        if protocol == "pty":
            continue
        if not _APP_NAME.fullmatch(name) or protocol not in set(Protocol):
            raise _wrong("service-ports", entry, f"write NAME:{'|'.join(Protocol)}:PORT")
        found.append(ServicePort(name, Protocol(protocol), _ports(entry, ports)))
    _check_unique([port.name for port in found], "app")
    _check_unique([number for port in found for number in port.ports], "port")
    return tuple(found)


def check_preopen_ports(ports: Sequence[int], labels: Mapping[str, str]) -> tuple[int, ...]:
    """Check and return the ports that a user declares for a session, in their order.

    Raises
    ------
    InvalidRequest
        If there are more than 32, one is repeated, reserved, outside 1025
        to 65534, or used by an app of the image.
    """
    if len(ports) > MAX_PREOPEN_PORTS:
        raise _wrong_port(f"{len(ports)} ports; at most {MAX_PREOPEN_PORTS} are allowed")
    taken = {
        number: service.name
        for service in parse_service_ports(labels.get(PREFIX + "service-ports", ""))
        for number in service.ports
    }
    for number in ports:
        if not LOWEST_PORT <= number <= HIGHEST_PORT:
            raise _wrong_port(f"port {number}: ports are {LOWEST_PORT} to {HIGHEST_PORT}")
        if number in RESERVED_PORTS or number == SERVER_PORT:
            raise _wrong_port(f"port {number} belongs to the session itself; take another")
        if number in taken:
            raise _wrong_port(f"port {number} is that of the image's {taken[number]}; take another")
        if ports.count(number) > 1:
            raise _wrong_port(f"port {number} comes twice")
    return tuple(ports)


def _wrong_port(why: str) -> InvalidRequest:
    return InvalidRequest(why, field="preopen_ports")


def _ports(entry: str, text: str) -> tuple[int, ...]:
    is_list = text.startswith("[") and text.endswith("]")
    numbers = []
    for word in (text[1:-1] if is_list else text).split(","):
        number = read_whole(word) or 0
        if not LOWEST_PORT <= number <= HIGHEST_PORT:
            raise _wrong("service-ports", entry, f"ports are {LOWEST_PORT} to {HIGHEST_PORT}")
        if number in RESERVED_PORTS:
            raise _wrong("service-ports", entry, f"port {number} is reserved")
        numbers.append(number)
    return tuple(numbers)


def _with_endpoints(mine: Mapping[str, str]) -> tuple[ServicePort, ...]:
    ports = parse_service_ports(mine.get("service-ports", ""))
    endpoints = set(_words(mine.get("endpoint-ports", "")))
    unknown = endpoints - {port.name for port in ports}
    if unknown:
        raise _wrong(
            "endpoint-ports", ",".join(sorted(unknown)), "a service port cannot have this name"
        )
    return tuple(
        ServicePort(p.name, p.protocol, p.ports, is_inference=p.name in endpoints) for p in ports
    )


def _slots(mine: Mapping[str, str]) -> tuple[dict[str, ResourceSlots], int | None]:
    amounts: dict[str, dict[str, int]] = {"min": {}, "max": {}, "preferred": {}}
    shared_memory = None
    for name, text in mine.items():
        if not name.startswith("resource."):
            continue
        _, bound, slot = name.split(".", 2)
        if bound == "preferred" and slot == _SHARED_MEMORY:
            shared_memory = parse_amount(MEM, text)
        else:
            amounts[bound][slot] = parse_amount(slot, text)
    return {bound: ResourceSlots(found) for bound, found in amounts.items()}, shared_memory


def _check_range(low: ResourceSlots, preferred: ResourceSlots, high: ResourceSlots) -> None:
    check_bounds(low, high)
    for slot, amount in preferred.items():
        if amount < low.get(slot, 0) or amount > high.get(slot, amount):
            raise InvalidRequest(
                f"the preferred amount of {slot} is outside its minimum and maximum",
                slot=slot,
            )


def check_bounds(low: ResourceSlots, high: ResourceSlots) -> None:
    """Refuse a minimum above its maximum; a slot missing from ``high`` has no maximum.

    Raises
    ------
    InvalidRequest
        If there is one; the message has the slot and both quantities.
    """
    for slot, most in high.items():
        least = low.get(slot, 0)
        if least > most:
            texts = ResourceSlots({slot: least}).format(), high.format()
            raise InvalidRequest(
                f"the minimum {slot}={texts[0][slot]} is above the maximum {slot}={texts[1][slot]}",
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


def _check_known(mine: Mapping[str, str]) -> None:
    for name, text in mine.items():
        is_amount = re.fullmatch(r"resource\.(min|max|preferred)\..+", name) is not None
        if name not in _KNOWN and not is_amount and not name.startswith("customized-image."):
            raise _wrong(name, text, "unknown label")


def _check_sizes(labels: Mapping[str, str]) -> None:
    if len(labels) > MAX_LABELS:
        raise InvalidRequest(f"an image may carry at most {MAX_LABELS} labels, not {len(labels)}")
    for name, text in labels.items():
        if len(name) + len(text) > MAX_LABEL_TEXT or "\0" in name + text:
            raise InvalidRequest(
                f"label {name[:64]!r} is longer than {MAX_LABEL_TEXT} characters or holds a NUL",
                label=name[:64],
            )


def _features(text: str) -> frozenset[str]:
    words = frozenset(_words(text))
    if unknown := words - FEATURES:
        raise _wrong("features", " ".join(sorted(unknown)), f"known are {sorted(FEATURES)}")
    return words


def _role(text: str) -> ImageRole:
    try:
        return ImageRole(text)
    except ValueError:
        raise _wrong("role", text, f"write one of {', '.join(ImageRole)}") from None


def _variables(text: str) -> tuple[str, ...]:
    words = tuple(_words(text))
    for word in words:
        if not _VARIABLE.fullmatch(word):
            raise _wrong("envs.corecount", word, "it is not a valid variable name")
    return words


def _version(label: str, text: str) -> str:
    if text and not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3}){0,2}", text):
        raise _wrong(label, text, "write a version such as 12.4")
    return text


def _words(text: str) -> list[str]:
    return [word for word in re.split(r"[,\s]+", text) if word]


def _check_unique(values: list[str] | list[int], what: str) -> None:
    twice = {value for value in values if values.count(value) > 1}  # type: ignore[arg-type]
    if twice:
        raise _wrong(
            "service-ports", ",".join(sorted(map(str, twice))), f"the same {what} comes twice"
        )


def _wrong(label: str, text: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"label {PREFIX}{label}={text[:200]!r}: {why}", label=PREFIX + label)
