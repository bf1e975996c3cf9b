"""A fake agent, which sends the requests of an agent to a real manager."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bai_services.client import Client

from .wait import wait_until_async

Kernel = Mapping[str, Any]


class FakeAgent:
    """An agent with 8 cores, 16 GiB and two simulated devices, which starts no containers."""

    def __init__(
        self, client: Client, agent_id: str = "a1", group: str = "default", **facts: Any
    ) -> None:
        self.id = agent_id
        self.client = client
        self.heartbeat: dict[str, Any] = {
            "resource_group": group,
            "engine": "process",
            "architecture": "x86_64",
            "version": "1",
            "slots": {"cpu": "8", "mem": "16g"},
            "devices": [
                {
                    "id": f"{agent_id}-g{i}",
                    "family": "cuda",
                    "index": i,
                    "memory_bytes": 2**34,
                    "is_simulated": True,
                }
                for i in range(2)
            ],
            **facts,
        }

    async def beat(self, kernels: Sequence[Kernel] | None = (), **facts: Any) -> None:
        """Send a heartbeat. ``facts`` are part of this heartbeat and of all later ones.

        None as ``kernels`` reports that the agent's engine does not respond.
        """
        self.heartbeat.update(facts)
        listed = None if kernels is None else list(kernels)
        body = {**self.heartbeat, "kernels": listed}
        await self.client.post(f"/agents/{self.id}/heartbeat", body)

    async def work(self, wait: float = 0) -> list[dict[str, Any]]:
        answer = await self.client.get(f"/agents/{self.id}/work", wait=str(wait))
        items: list[dict[str, Any]] = answer["items"]
        return items

    async def report(self, item: Mapping[str, Any], state: str = "done", **facts: Any) -> None:
        body = {
            "work_id": item["id"],
            "kind": item["kind"],
            "session_id": item["session_id"],
            "kernel_id": item["kernel_id"],
            "state": state,
            **facts,
        }
        await self.client.post(f"/agents/{self.id}/reports", body)

    async def prepare(self) -> dict[str, Any]:
        """Wait for a work item, report it as done and return it; it must be a single `prepare`."""
        # 60 s, because the first placement in a process may compile the placement code.
        items = await wait_until_async(lambda: self.work(5), 60, "a work item")
        assert [item["kind"] for item in items] == ["prepare"], items
        await self.report(items[0], injection={"environ": {"CUDA_VISIBLE_DEVICES": "0"}})
        return items[0]

    @staticmethod
    def running(item: Mapping[str, Any], **facts: Any) -> dict[str, Any]:
        """Return the entry for a running kernel in a heartbeat; ``item`` is its work item."""
        return {
            "kernel_id": item["kernel_id"],
            "session_id": item["session_id"],
            "container_id": "c1",
            "is_running": True,
            **facts,
        }
