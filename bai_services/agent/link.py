"""Client of the manager for one agent: heartbeats, long polls for work, reports."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from bai_services.core.errors import BaiError, Unavailable
from bai_services.service_client import ServiceClient

log = logging.getLogger(__name__)

LONG_POLL_SECONDS = 25
RESPONSE_TIMEOUT_SECONDS = 10.0
# Time for which a final report is retried. If the report is not delivered, the manager sends the
# work item again.
REPORT_RETRY_SECONDS = 60.0
FIRST_BACKOFF_SECONDS = 0.2
MAX_BACKOFF_SECONDS = 5.0


class Link:
    """Calls the manager for one agent.

    If the manager does not respond, ``heartbeat`` and ``work`` raise ``Unavailable``.
    """

    def __init__(self, client: ServiceClient, agent_id: str) -> None:
        self._client = client
        self._path = f"/agents/{agent_id}"

    async def heartbeat(self, content: Mapping[str, Any]) -> Mapping[str, Any]:
        response: Mapping[str, Any] = await self._client.post(
            f"{self._path}/heartbeat", dict(content), timeout_seconds=RESPONSE_TIMEOUT_SECONDS
        )
        return response

    async def work(self) -> Sequence[Mapping[str, Any]]:
        """Long-poll for work items; return [] if there were none for ``LONG_POLL_SECONDS``."""
        response = await self._client.get(
            f"{self._path}/work",
            timeout_seconds=LONG_POLL_SECONDS + RESPONSE_TIMEOUT_SECONDS,
            wait=LONG_POLL_SECONDS,
        )
        items: Sequence[Mapping[str, Any]] = response["items"]
        return items

    async def report(self, content: Mapping[str, Any]) -> None:
        """Send one progress report; it is dropped if the manager does not respond or rejects it."""
        try:
            await self._post_report(content)
        except BaiError as error:
            log.info("a report on work item %s was lost: %s", content.get("work_id"), error)

    async def report_or_raise(self, content: Mapping[str, Any]) -> None:
        """Send one progress report; raise a BaiError if the manager rejects it."""
        await self._post_report(content)

    async def deliver(self, content: Mapping[str, Any]) -> bool:
        """Send a final report; retry for ``REPORT_RETRY_SECONDS`` while the manager does not
        respond.

        Return whether the manager has received it, and the kernel may be removed.
        """
        backoff = FIRST_BACKOFF_SECONDS
        deadline = asyncio.get_running_loop().time() + REPORT_RETRY_SECONDS
        work_id = content.get("work_id")
        while True:
            try:
                return await self._post_report(content)
            except Unavailable as error:
                if asyncio.get_running_loop().time() > deadline:
                    log.warning("giving up on the report of work item %s: %s", work_id, error)
                    return False
            except BaiError as error:
                log.warning("the manager rejected the report of work item %s: %s", work_id, error)
                return False
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, MAX_BACKOFF_SECONDS)

    async def _post_report(self, content: Mapping[str, Any]) -> bool:
        response = await self._client.post(
            f"{self._path}/reports", dict(content), timeout_seconds=RESPONSE_TIMEOUT_SECONDS
        )
        # An older manager sends no response.
        return bool((response or {}).get("is_removable"))
