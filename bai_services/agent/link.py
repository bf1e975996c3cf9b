"""The agent's client of the manager, with long polls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from bai_services.core.errors import BaiError, Unavailable
from bai_services.service_client import ServiceClient

log = logging.getLogger(__name__)

WAIT_SECONDS = 25
ANSWER_SECONDS = 10.0
# After this time the manager offers the work again anyway.
REPORT_SECONDS = 60.0
FIRST_BACKOFF_SECONDS = 0.2
MAX_BACKOFF_SECONDS = 5.0


class Link:
    """Calls the manager for one agent; raises ``Unavailable`` if the manager does not answer."""

    def __init__(self, client: ServiceClient, agent_id: str) -> None:
        self._client = client
        self._path = f"/agents/{agent_id}"

    async def heartbeat(self, content: Mapping[str, Any]) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = await self._client.post(
            f"{self._path}/heartbeat", dict(content), timeout_seconds=ANSWER_SECONDS
        )
        return answer

    async def work(self) -> Sequence[Mapping[str, Any]]:
        """Return work items as soon as there are some; [] after the wait."""
        answer = await self._client.get(
            f"{self._path}/work", timeout_seconds=WAIT_SECONDS + ANSWER_SECONDS, wait=WAIT_SECONDS
        )
        items: Sequence[Mapping[str, Any]] = answer["items"]
        return items

    async def report(self, content: Mapping[str, Any]) -> None:
        """Send one report; it is lost if the manager does not answer."""
        try:
            await self._client.post(
                f"{self._path}/reports", dict(content), timeout_seconds=ANSWER_SECONDS
            )
        except BaiError as error:
            log.info("a report on %s did not arrive: %s", content.get("work_id"), error)

    async def deliver(self, content: Mapping[str, Any]) -> None:
        """Send a final report, repeated for a minute while the manager does not answer."""
        backoff = FIRST_BACKOFF_SECONDS
        deadline = asyncio.get_running_loop().time() + REPORT_SECONDS
        while True:
            try:
                await self._client.post(
                    f"{self._path}/reports", dict(content), timeout_seconds=ANSWER_SECONDS
                )
                return
            except Unavailable as error:
                if asyncio.get_running_loop().time() > deadline:
                    log.warning("the report on %s is abandoned: %s", content.get("work_id"), error)
                    return
            except BaiError as error:
                log.warning("the report on %s was refused: %s", content.get("work_id"), error)
                return
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, MAX_BACKOFF_SECONDS)
