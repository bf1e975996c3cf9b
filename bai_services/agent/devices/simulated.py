"""Simulated GPUs for machines without a real one: they are scheduled, but cannot compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .base import Device, DeviceInjection, DeviceKind, Finding, GrantedDevice
from .nvidia.cuda import HIDDEN

MEMORY_BYTES = 16 * 2**30
PROCESSORS = 100
NOTICE = (
    "The GPUs of this session are simulated: they are scheduled and counted like real GPUs, "
    "but programs cannot compute on them."
)


class SimulatedGpus(DeviceKind):
    """A configured number of CUDA devices, marked as simulated."""

    family = "cuda"

    def __init__(self, agent_id: str, count: int) -> None:
        self._devices = [
            Device(
                id=f"SIM-{agent_id}-{index}",
                family=self.family,
                index=index,
                model="Simulated GPU",
                memory_bytes=MEMORY_BYTES,
                is_simulated=True,
                processors=PROCESSORS,
            )
            for index in range(count)
        ]

    def discover(self) -> list[Device]:
        return list(self._devices)

    def finding(self) -> Finding:
        return Finding(
            self.family,
            "Simulated GPUs",
            tried="no",
            found=len(self._devices),
            reason="simulated, because no NVIDIA GPU was found",
        )

    def hidden(self) -> Mapping[str, str]:
        return HIDDEN

    def inject(self, granted: Sequence[GrantedDevice], engine: str) -> DeviceInjection:
        # Also hide real devices, because the machine may get one while the agent runs.
        return DeviceInjection(environ=HIDDEN, notices=[NOTICE])
