"""AMD Instinct GPUs: found in ``/sys``, with additional metrics from the AMD SMI library."""

from __future__ import annotations

from typing import Any

from ..base import DeviceProcess
from ..host_access import HostAccess
from ..table import Row
from ..table_devices import TableDevices

MIB = 2**20


class AmdSmi:
    """Wrapper around the optional ``amdsmi`` binding; unknown values are None."""

    def __init__(self, module: Any | None = None) -> None:
        """``module`` is the binding; None imports it if it is installed."""
        self._module = module
        self._handles: dict[str, Any] = {}
        self._is_open = False

    def open(self) -> bool:
        """Load the library and list its GPUs; return whether that worked.

        After a failure, the next call tries again.
        """
        if self._is_open:
            return True
        if self._module is None:
            try:
                import amdsmi
            except Exception:
                # Without the library, the import of the binding raises various exceptions.
                return False
            self._module = amdsmi
        try:
            self._module.amdsmi_init()
        except self._module.AmdSmiException:
            return False
        for handle in self.call("amdsmi_get_processor_handles") or ():
            address = self.call("amdsmi_get_gpu_device_bdf", handle)
            if address is not None:
                self._handles[str(address).lower()] = handle
        self._is_open = True
        return True

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function of the binding; return None if it is missing or fails."""
        function = getattr(self._module, name, None)
        if function is None:
            return None
        try:
            return function(*arguments)
        except self._module.AmdSmiException:  # type: ignore[union-attr]
            return None

    def sample(self, address: str) -> dict[str, Any]:
        """Return the metrics of the GPU at a PCI address; {} if the library does not list it."""
        handle = self._handles.get(address)
        if handle is None:
            return {}
        busy, memory, power = (
            self.call(name, handle) or {}
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
        """Return the processes that use a GPU."""
        handle = self._handles.get(address)
        listed = self.call("amdsmi_get_gpu_process_list", handle) if handle is not None else None
        processes = []
        for entry in listed or ():
            memory = _number((entry.get("memory_usage") or {}).get("vram_mem"))
            pid = _number(entry.get("pid"))
            if pid:
                processes.append(
                    DeviceProcess(device_id, int(pid), None if memory is None else int(memory))
                )
        return processes


class AmdGpus(TableDevices):
    """AMD GPUs and their partitions, with metrics and processes from the AMD SMI library."""

    def __init__(
        self, row: Row, machine: str, host: HostAccess, library: AmdSmi | None = None
    ) -> None:
        super().__init__(row, machine, host)
        self._library = library or AmdSmi()
        self.reports_processes = False

    def sample(self) -> dict[str, dict[str, Any]]:
        samples = super().sample()
        # Set the attribute here, because ``sample`` is called before ``processes``.
        self.reports_processes = self._library.open()
        if not self.reports_processes:
            return samples
        for device_id, sample in samples.items():
            fallback = self._library.sample(self._address(device_id))
            sample.update({name: fallback.get(name) for name in sample if sample[name] is None})
        return samples

    def processes(self) -> list[DeviceProcess]:
        if not self.reports_processes:
            return []
        return [
            process
            for device_id in self._seen
            for process in self._library.processes(self._address(device_id), device_id)
        ]

    def _address(self, device_id: str) -> str:
        return str(self._known[device_id].facts["pci"]).lower()


def _number(value: Any) -> float | None:
    """Return ``value`` if it is a number, else None: the library reports unknown values as N/A."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
