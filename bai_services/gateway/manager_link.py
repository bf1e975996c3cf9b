"""Routes from the manager, and reports to the manager."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from bai_services.core.errors import BaiError, InvalidRequest, TooLarge
from bai_services.core.serving.gateway_json import table_from_json
from bai_services.service_client import ServiceClient

from .health import HealthChecks
from .measures import Measures, Requests
from .routes import Load, Routes

log = logging.getLogger("bai_services.gateway")

WAIT_SECONDS = 25
# This is added to the manager's waiting time, so that the response arrives before the call times
# out.
ANSWER_SECONDS = 10
FIRST_RETRY_SECONDS = 0.25
MAX_RETRY_SECONDS = 3.0
BUSY_SECONDS = 1.0
QUIET_SECONDS = 10.0

NO_LOAD = Load()


def _load_of(endpoint: Mapping[str, Any]) -> Load:
    return Load(endpoint["in_flight"], endpoint["queued"])


class RouteUpdates:
    """Long poll of the routing table. While the manager is down, the last table stays in use."""

    def __init__(self, client: ServiceClient, routes: Routes) -> None:
        self._client = client
        self._routes = routes

    async def run(self) -> None:
        retry = FIRST_RETRY_SECONDS
        while True:
            try:
                await self.poll()
                retry = FIRST_RETRY_SECONDS
            except (BaiError, KeyError, TypeError, ValueError, AttributeError) as error:
                log.warning("routes: %s: %s", type(error).__name__, error)
                await asyncio.sleep(retry)
                retry = min(2 * retry, MAX_RETRY_SECONDS)

    async def poll(self) -> None:
        document = await self._client.get(
            "/gateway/routes",
            timeout_seconds=WAIT_SECONDS + ANSWER_SECONDS,
            version=self._routes.version,
            wait=WAIT_SECONDS,
        )
        if document is not None:
            self._routes.apply(table_from_json(document))


class Reports:
    """Sends load, counters, and drained and failed replicas.

    Counters of a report without a response are sent again with the same id; the manager counts each
    id only once. A report that the manager rejects as invalid is dropped, because it would be
    rejected again. A report contains the endpoints whose counters or load have changed. After a new
    routing table or a failure, it contains all endpoints, because the manager may need their loads.
    """

    def __init__(
        self,
        client: ServiceClient,
        gateway_id: str,
        routes: Routes,
        measures: Measures,
        health: HealthChecks,
    ) -> None:
        self._client = client
        self._gateway_id = gateway_id
        self._routes = routes
        self._measures = measures
        self._health = health
        self._unsent: dict[str, Any] | None = None
        # The loads that the manager has received (None: unknown), and the version of the routing
        # table with which they were reported.
        self._loads: dict[str, Load | None] = {}
        self._loads_version = ""
        self._wake = asyncio.Event()
        self._waited_at = -BUSY_SECONDS

    def wake(self) -> None:
        """Send a report soon, because a replica was drained or has failed."""
        self._wake.set()

    def request_waits(self) -> None:
        """Send a report soon, unless this has happened within ``BUSY_SECONDS``: the manager may
        start a replica.
        """
        now = time.monotonic()
        if now - self._waited_at >= BUSY_SECONDS:
            self._waited_at = now
            self.wake()

    async def run(self) -> None:
        while True:
            try:
                await self.send()
            except BaiError as error:
                log.warning("report: %s", error)
            quiet = QUIET_SECONDS / BUSY_SECONDS
            # Check the load every second, because requests may begin at any time.
            while quiet > 0 and not self._is_busy():
                quiet -= 1
                if await self._woken(BUSY_SECONDS):
                    break
            else:
                await self._woken(BUSY_SECONDS)

    async def send(self) -> None:
        """Send a report, after any earlier report that got no response."""
        if self._unsent is not None:
            await self._send_unsent()
        if self._loads_version != self._routes.version:
            # The new table may contain a new scaling rule.
            self._loads_version = self._routes.version
            self._forget_loads()
        self._unsent = self.document(secrets.token_hex(16))
        await self._send_unsent()

    def _forget_loads(self) -> None:
        self._loads = dict.fromkeys(self._loads)

    async def _send_unsent(self) -> None:
        assert self._unsent is not None
        loads = self._loads | {each["id"]: _load_of(each) for each in self._unsent["endpoints"]}
        self._forget_loads()
        try:
            await self._client.post("/gateway/reports", self._unsent)
            live = {endpoint.route.id for endpoint in self._routes.by_name.values()}
            self._loads = {
                key: load for key, load in loads.items() if key in live or load != NO_LOAD
            }
        except (InvalidRequest, TooLarge) as error:
            log.error("the manager rejects a report: %s", error)
        self._unsent = None

    async def _woken(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        was_woken = self._wake.is_set()
        self._wake.clear()
        return was_woken

    def _is_busy(self) -> bool:
        return bool(self._measures.endpoints) or any(
            endpoint.load != NO_LOAD for endpoint in self._routes.by_name.values()
        )

    def document(self, report_id: str) -> dict[str, Any]:
        """Return the next report; its counters start from zero."""
        taken = self._measures.take()
        live = {endpoint.route.id: endpoint for endpoint in self._routes.by_name.values()}
        revisions: dict[str, dict[str, Any]] = defaultdict(dict)
        for (owner, revision), requests in taken.revisions.items():
            revisions[owner][revision] = requests.as_json()
        endpoints = []
        for name in {**live, **taken.endpoints, **self._loads}:
            load = live[name].load if name in live else NO_LOAD
            if name not in taken.endpoints and load == self._loads.get(name):
                continue
            endpoints.append(
                {
                    "id": name,
                    "in_flight": load.in_flight,
                    "queued": load.queued,
                    **taken.endpoints.get(name, Requests()).as_json(),
                    "revisions": revisions[name],
                }
            )
        return {
            "gateway_id": self._gateway_id,
            "report_id": report_id,
            "endpoints": endpoints,
            "tokens": [{"id": name, **use.as_json()} for name, use in taken.tokens.items()],
            "drained": [
                replica.id
                for endpoint in live.values()
                for replica in endpoint.replicas.values()
                if replica.is_drained
            ],
            "failed": [replica.id for replica in self._health.failed()],
        }
