"""AMD Instinct: found in /sys; the vendor's library adds missing figures."""

from __future__ import annotations

from typing import Any

from ..base import DeviceProcess
from ..host_files import HostFiles
from ..table import Row
from ..table_devices import TableDevices

MIB = 2**20


class AmdSmi:
    """The binding ``amdsmi``, if it is installed; unknown values are None."""

    def __init__(self, module: Any | None = None) -> None:
        """``module`` is the binding; None imports it if it is installed."""
        self._module = module
        self._handles: dict[str, Any] = {}
        self._is_open = False

    def open(self) -> bool:
        """Load the library and list its GPUs; tried again at each call until it works."""
        if self._is_open:
            return True
        if self._module is None:
            try:
                import amdsmi
            except Exception:
                # Without its library the binding fails at import with various exceptions.
                return False
            self._module = amdsmi
        try:
            self._module.amdsmi_init()
        except self._module.AmdSmiException:
            return False
        for handle in self.ask("amdsmi_get_processor_handles") or ():
            address = self.ask("amdsmi_get_gpu_device_bdf", handle)
            if address is not None:
                self._handles[str(address).lower()] = handle
        self._is_open = True
        return True

    def ask(self, name: str, *arguments: Any) -> Any:
        """Call a function; None if the binding or the driver does not have it."""
        call = getattr(self._module, name, None)
        if call is None:
            return None
        try:
            return call(*arguments)
        except self._module.AmdSmiException:  # type: ignore[union-attr]
            return None

    def sample(self, address: str) -> dict[str, Any]:
        """Return the usage of a GPU, by its PCI address."""
        handle = self._handles.get(address)
        if handle is None:
            return {}
        busy, memory, power = (
            self.ask(name, handle) or {}
            for name in ("amdsmi_get_gpu_activity", "amdsmi_get_gpu_vram_usage",
                         "amdsmi_get_power_info")
        )  # fmt: skip
        used = _number(memory.get("vram_used"))
        watts = _number(power.get("current_socket_power"))
        return {
            "utilization_percent": _number(busy.get("gfx_activity")),
            "memory_used_bytes": None if used is None else int(used * MIB),
            "power_watts": _number(power.get("average_socket_power")) if watts is None else watts,
        }

    def processes(self, address: str, device_id: str) -> list[DeviceProcess]:
        """Return the processes that hold memory of a GPU."""
        handle = self._handles.get(address)
        found = self.ask("amdsmi_get_gpu_process_list", handle) if handle is not None else None
        held = []
        for process in found or ():
            memory = _number((process.get("memory_usage") or {}).get("vram_mem"))
            pid = _number(process.get("pid"))
            if pid:
                held.append(
                    DeviceProcess(device_id, int(pid), None if memory is None else int(memory))
                )
        return held


class Instincts(TableDevices):
    """GPUs and partitions of the row, with what the vendor's library adds."""

    def __init__(
        self, row: Row, machine: str, host: HostFiles, library: AmdSmi | None = None
    ) -> None:
        super().__init__(row, machine, host)
        self._library = library or AmdSmi()
        self.tells_processes = False

    def sample(self) -> dict[str, dict[str, Any]]:
        found = super().sample()
        # Set before processes are queried, so that it is known whether there will be any.
        self.tells_processes = self._library.open()
        if not self.tells_processes:
            return found
        for device_id, sample in found.items():
            more = self._library.sample(self._address(device_id))
            sample.update({name: more.get(name) for name in sample if sample[name] is None})
        return found

    def processes(self) -> list[DeviceProcess]:
        if not self.tells_processes:
            return []
        return [
            process
            for device_id in self._seen
            for process in self._library.processes(self._address(device_id), device_id)
        ]

    def _address(self, device_id: str) -> str:
        return str(self._known[device_id].facts["pci"]).lower()


def _number(value: Any) -> float | None:
    """Return a number; the library reports unknown values as N/A."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
