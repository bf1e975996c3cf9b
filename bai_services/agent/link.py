"""Client of the manager for one agent: heartbeats, long polls for work, reports."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bai_services.client import error_of
from bai_services.core.errors import BaiError, Unavailable
from bai_services.service_client import ServiceClient, to_json

log = logging.getLogger(__name__)

LONG_POLL_SECONDS = 25
RESPONSE_TIMEOUT_SECONDS = 10.0
# Time for which a final report is retried. If the report is not delivered, the manager sends the
# work item again.
REPORT_RETRY_SECONDS = 60.0
# The manager accepts 1 MiB; a report above this limit is sent in a separate request.
MAX_BATCH_BYTES = 512 * 1024
FIRST_BACKOFF_SECONDS = 0.2
MAX_BACKOFF_SECONDS = 5.0


class Link:
    """Calls the manager for one agent.

    If the manager does not respond, ``heartbeat`` and ``work`` raise ``Unavailable``.
    """

    def __init__(self, client: ServiceClient, agent_id: str) -> None:
        self._client = client
        self._path = f"/agents/{agent_id}"
        self._max_reports = 1
        self._waiting: deque[_Waiting] = deque()
        # Only one request at a time is sent; further reports wait until it has ended, and then
        # share the next request.
        self._sending = asyncio.Lock()

    async def heartbeat(self, content: Mapping[str, Any]) -> Mapping[str, Any]:
        response: Mapping[str, Any] = await self._client.post(
            f"{self._path}/heartbeat", dict(content), timeout_seconds=RESPONSE_TIMEOUT_SECONDS
        )
        # Without the field, send one report per request: an older manager accepts no more.
        self._max_reports = int(response.get("max_reports") or 1)
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
        """Send a report, together with the reports that are waiting for the current request.

        Return whether the kernel may be removed.
        """
        own = _Waiting(to_json(content), asyncio.get_running_loop().create_future())
        self._waiting.append(own)
        try:
            async with self._sending:
                while not own.result.done():
                    await self._send(self._next_batch())
            return await own.result
        finally:
            own.result.cancel()  # has an effect only if this task was cancelled

    def _next_batch(self) -> list[_Waiting]:
        """Take the oldest waiting reports, within the limits of one request."""
        batch: list[_Waiting] = []
        size = 0
        while self._waiting and len(batch) < self._max_reports:
            size += len(self._waiting[0].content)
            if batch and size > MAX_BATCH_BYTES:
                break
            one = self._waiting.popleft()
            if not one.result.done():  # false if its task was cancelled
                batch.append(one)
        return batch

    async def _send(self, batch: Sequence[_Waiting]) -> None:
        """Send reports, and set their results; an error of the request is the error of each."""
        try:
            for one, result in zip(batch, await self._results(batch), strict=True):
                one.finish(result)
        except BaiError as error:
            for one in batch:
                one.finish(error)
        except BaseException:
            for one in batch:
                one.finish(Unavailable("the request was cancelled"))
            raise

    async def _results(self, batch: Sequence[_Waiting]) -> list[bool | BaiError]:
        if len(batch) == 1:
            response = await self._post("reports", batch[0].content)
            # An older manager sends no response.
            return [bool((response or {}).get("is_removable"))]
        body = b'{"reports":[' + b",".join(one.content for one in batch) + b"]}"
        response = await self._post("bulk-reports", body)
        return [
            error_of(result["error"]) if result["error"] else bool(result["is_removable"])
            for result in response["results"]
        ]

    async def _post(self, name: str, body: bytes) -> Any:
        return await self._client.post(
            f"{self._path}/{name}", body, timeout_seconds=RESPONSE_TIMEOUT_SECONDS
        )


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A report in JSON, and its result: whether the kernel may be removed."""

    content: bytes
    result: asyncio.Future[bool]

    def finish(self, result: bool | BaiError) -> None:
        if self.result.done():
            return  # the task of this report was cancelled
        if isinstance(result, BaiError):
            self.result.set_exception(result)
        else:
            self.result.set_result(result)
