"""Devices in the heartbeats of simulated agents."""

from __future__ import annotations

_DEVICES = 8


def devices_of(agent: int, utilization: int = 40) -> list[dict[str, object]]:
    """Return the devices of an agent as in its heartbeat."""
    return [
        {
            "id": f"a{agent}-g{index}",
            "family": "cuda",
            "index": index,
            "model": "A100",
            "memory_bytes": 80 * 2**30,
            "is_simulated": True,
            "facts": {"utilization": utilization, "memory_used_bytes": 2**34, "temperature": 60},
        }
        for index in range(_DEVICES)
    ]
