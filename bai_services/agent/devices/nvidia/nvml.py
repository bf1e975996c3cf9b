"""NVIDIA's management library through ``pynvml``; unknown values are None, never an error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

# The end of a link may be a switch, behind which are all GPUs with links to switches.
SWITCH = "switch"
NVLINK_IS_SWITCH = 2
# Common ancestors of two GPUs up to this value: one board or PCI switches, but no host bridge.
BEHIND_SWITCHES = 20
# Result codes of the library.
SUCCESS, NOT_FOUND = 0, 6


class Nvml:
    """Calls the library if it is installed; every call may block."""

    def __init__(self, module: Any | None = None) -> None:
        """``module`` is ``pynvml``; None imports it if it is installed."""
        self._module = module
        self.is_open = False
        self.why_not = "not searched for yet"

    def open(self) -> bool:
        """Load the library; tried again at each call until there is a driver."""
        if self.is_open:
            return True
        if self._module is None:
            try:
                import pynvml
            except ImportError:
                self.why_not = "the package nvidia-ml-py is not installed"
                return False
            self._module = pynvml
        try:
            self._module.nvmlInit()
        except self._module.NVMLError as error:
            self.why_not = f"the NVIDIA driver's library cannot be used: {error}"
            return False
        self.is_open, self.why_not = True, ""
        return True

    def ask(self, name: str, *arguments: Any, otherwise: Any = None) -> Any:
        """Call a function; ``otherwise`` is the result if the driver lacks the function or lost
        the device.
        """
        assert self._module is not None
        call: Callable[..., Any] | None = getattr(self._module, name, None)
        if call is None:
            return otherwise
        try:
            return call(*arguments)
        except (self._module.NVMLError, self._module.NVMLLibraryMismatchError):
            # The second exception is raised by the binding if an older driver lacks the function.
            return otherwise

    def busy_processes(self, handle: Any, since_microseconds: int) -> dict[int, float] | None:
        """Return the utilization by process since then, in percent; None: unknown.

        Idle processes are left out.
        """
        assert self._module is not None
        try:
            samples = self._module.nvmlDeviceGetProcessUtilization(handle, since_microseconds)
        except (self._module.NVMLError, self._module.NVMLLibraryMismatchError) as error:
            # No sample at all: the device was idle.
            return {} if getattr(error, "value", None) in (SUCCESS, NOT_FOUND) else None
        parts: dict[int, list[int]] = {}
        for sample in samples:
            parts.setdefault(int(sample.pid), []).append(int(sample.smUtil))
        return {pid: sum(values) / len(values) for pid, values in parts.items()}

    def has(self, name: str) -> bool:
        """Return whether the binding and the driver's library both have a function."""
        pointer = getattr(self._module, "_nvmlGetFunctionPointer", None)
        if pointer is None or not hasattr(self._module, name):
            return False
        try:
            pointer(name)
        except self._module.NVMLError:  # type: ignore[union-attr]
            return False
        return True

    def text(self, name: str, *arguments: Any) -> str | None:
        """Call a function that returns a text."""
        value = self.ask(name, *arguments)
        if value is None:
            return None
        return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

    def bus_of(self, handle: Any) -> str | None:
        """Return the PCI address of a device, as the library writes it."""
        pci = self.ask("nvmlDeviceGetPciInfo", handle)
        return None if pci is None else _address(pci)

    def link_ends(self, handle: Any) -> Mapping[str, int] | None:
        """Return the number of NVLinks to each PCI address, or to ``switch``; None: unknown."""
        ends: Counter[str] = Counter()
        is_known = False
        for link in range(getattr(self._module, "NVML_NVLINK_MAX_LINKS", 0)):
            state = self.ask("nvmlDeviceGetNvLinkState", handle, link)
            if state is None:
                continue
            is_known = True
            if not state:
                continue
            kind = self.ask("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
            remote = self.ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, link)
            if kind == NVLINK_IS_SWITCH:
                ends[SWITCH] += 1
            elif remote is not None:
                ends[_address(remote)] += 1
        return ends if is_known else None

    def pci_peers(self, handles: Mapping[str, Any]) -> dict[str, list[str] | None]:
        """Return for each GPU those behind the same PCI switches; None if unknown."""
        found: dict[str, list[str] | None] = {}
        for uuid, handle in handles.items():
            ancestors = {
                other: self.ask("nvmlDeviceGetTopologyCommonAncestor", handle, there)
                for other, there in handles.items()
                if other != uuid
            }
            known = {other: level for other, level in ancestors.items() if level is not None}
            near = sorted(other for other, level in known.items() if level <= BEHIND_SWITCHES)
            found[uuid] = near if known else None
        return found


def peers(
    bus: Mapping[str, str | None], ends: Mapping[str, Mapping[str, int] | None]
) -> dict[str, dict[str, int] | None]:
    """Return for each GPU the number of NVLinks to each other GPU; None if unknown.

    ``bus`` contains the PCI address and ``ends`` the link ends of each GPU, both by uuid. Behind a
    switch every GPU reaches every other with the number of links of the weaker one.
    """
    of_address = {address: uuid for uuid, address in bus.items() if address is not None}
    found: dict[str, dict[str, int] | None] = {}
    for uuid, mine in ends.items():
        if mine is None:
            found[uuid] = None
            continue
        direct = {of_address[end]: count for end, count in mine.items() if end in of_address}
        for other, theirs in ends.items():
            shared = min(mine.get(SWITCH, 0), (theirs or {}).get(SWITCH, 0))
            if other != uuid and shared:
                direct[other] = direct.get(other, 0) + shared
        found[uuid] = dict(sorted(direct.items()))
    return found


def _address(pci: Any) -> str:
    value = pci.busId
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return text.lower()
