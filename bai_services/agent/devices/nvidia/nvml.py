"""Wrapper around NVIDIA's management library (NVML); unknown values are None."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

# Key for links to an NVSwitch. Through switches, a GPU is connected to all other GPUs that have
# links to a switch.
SWITCH = "switch"
NVLINK_IS_SWITCH = 2
# Up to this topology level, there are only PCI switches, but no host bridge, between two GPUs.
BEHIND_SWITCHES = 20
# Result codes of NVML.
SUCCESS, NOT_FOUND = 0, 6


class Nvml:
    """Calls NVML if it is installed; every call may block."""

    def __init__(self, module: Any | None = None) -> None:
        """``module`` is ``pynvml``; None imports it if it is installed."""
        self._module = module
        self.is_open = False
        self.unavailable_reason = "not loaded yet"

    def open(self) -> bool:
        """Load NVML unless it is loaded already, and return whether it is loaded."""
        if self.is_open:
            return True
        if self._module is None:
            try:
                import pynvml
            except ImportError:
                self.unavailable_reason = "the package nvidia-ml-py is not installed"
                return False
            self._module = pynvml
        try:
            self._module.nvmlInit()
        except self._module.NVMLError as error:
            self.unavailable_reason = f"the NVIDIA driver's library cannot be used: {error}"
            return False
        self.is_open, self.unavailable_reason = True, ""
        return True

    def call(self, name: str, *arguments: Any, default: Any = None) -> Any:
        """Call a function; return ``default`` if the driver lacks the function or reports an
        error.
        """
        assert self._module is not None
        function: Callable[..., Any] | None = getattr(self._module, name, None)
        if function is None:
            return default
        try:
            return function(*arguments)
        except (self._module.NVMLError, self._module.NVMLLibraryMismatchError):
            # NVMLLibraryMismatchError: an older driver lacks the function.
            return default

    def busy_processes(self, handle: Any, since_microseconds: int) -> dict[int, float] | None:
        """Return the mean utilization of a device in percent, by pid; None: unknown.

        ``since_microseconds`` is the Unix time from which samples count. Processes without samples
        are left out.
        """
        assert self._module is not None
        try:
            samples = self._module.nvmlDeviceGetProcessUtilization(handle, since_microseconds)
        except (self._module.NVMLError, self._module.NVMLLibraryMismatchError) as error:
            # These codes mean that there is no sample: the device was idle.
            return {} if getattr(error, "value", None) in (SUCCESS, NOT_FOUND) else None
        percents: dict[int, list[int]] = {}
        for sample in samples:
            percents.setdefault(int(sample.pid), []).append(int(sample.smUtil))
        return {pid: sum(values) / len(values) for pid, values in percents.items()}

    def has(self, name: str) -> bool:
        """Return whether both the binding and the driver's library have a function."""
        pointer = getattr(self._module, "_nvmlGetFunctionPointer", None)
        if pointer is None or not hasattr(self._module, name):
            return False
        try:
            pointer(name)
        except self._module.NVMLError:  # type: ignore[union-attr]
            return False
        return True

    def text(self, name: str, *arguments: Any) -> str | None:
        """Call a function and return its result as text; None if it is unknown."""
        value = self.call(name, *arguments)
        if value is None:
            return None
        return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

    def bus_of(self, handle: Any) -> str | None:
        """Return the PCI address of a device in lower case, such as ``00000000:3b:00.0``."""
        pci = self.call("nvmlDeviceGetPciInfo", handle)
        return None if pci is None else _address(pci)

    def link_ends(self, handle: Any) -> Mapping[str, int] | None:
        """Return the number of NVLinks to each PCI address, or to ``switch``; None: unknown."""
        ends: Counter[str] = Counter()
        is_known = False
        for link in range(getattr(self._module, "NVML_NVLINK_MAX_LINKS", 0)):
            state = self.call("nvmlDeviceGetNvLinkState", handle, link)
            if state is None:
                continue
            is_known = True
            if not state:
                continue
            kind = self.call("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
            remote = self.call("nvmlDeviceGetNvLinkRemotePciInfo", handle, link)
            if kind == NVLINK_IS_SWITCH:
                ends[SWITCH] += 1
            elif remote is not None:
                ends[_address(remote)] += 1
        return ends if is_known else None

    def pci_peers(self, handles: Mapping[str, Any]) -> dict[str, list[str] | None]:
        """Return for each GPU the uuids of the GPUs behind the same PCI switches; None: unknown."""
        by_uuid: dict[str, list[str] | None] = {}
        for uuid, handle in handles.items():
            ancestors = {
                other: self.call("nvmlDeviceGetTopologyCommonAncestor", handle, there)
                for other, there in handles.items()
                if other != uuid
            }
            known = {other: level for other, level in ancestors.items() if level is not None}
            near = sorted(other for other, level in known.items() if level <= BEHIND_SWITCHES)
            by_uuid[uuid] = near if known else None
        return by_uuid


def peers(
    bus: Mapping[str, str | None], ends: Mapping[str, Mapping[str, int] | None]
) -> dict[str, dict[str, int] | None]:
    """Return for each GPU the number of NVLinks to each other GPU; None: unknown.

    ``bus`` has the PCI address and ``ends`` the link ends of each GPU, both by uuid. For two GPUs
    connected through a switch, return the smaller of their numbers of links to it.
    """
    uuid_of_address = {address: uuid for uuid, address in bus.items() if address is not None}
    by_uuid: dict[str, dict[str, int] | None] = {}
    for uuid, own_ends in ends.items():
        if own_ends is None:
            by_uuid[uuid] = None
            continue
        links = {
            uuid_of_address[end]: count for end, count in own_ends.items() if end in uuid_of_address
        }
        for other, other_ends in ends.items():
            through_switch = min(own_ends.get(SWITCH, 0), (other_ends or {}).get(SWITCH, 0))
            if other != uuid and through_switch:
                links[other] = links.get(other, 0) + through_switch
        by_uuid[uuid] = dict(sorted(links.items()))
    return by_uuid


def _address(pci: Any) -> str:
    value = pci.busId
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return text.lower()
