"""The routing table for gateways, and their reports."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from bai_services.core.accounts.roles import Caller
from bai_services.core.serving.gateway_records import (
    EndpointRoute,
    Protocol,
    ReplicaRoute,
    RoutingTable,
    TokenRoute,
)
from bai_services.core.serving.rollout import Phase
from bai_services.db.serving.gateways import (
    EndpointCounts,
    GatewayStore,
    RevisionCounts,
    RoutingRows,
)
from bai_services.db.serving.usage import TokenCounts

from ..accounts import authorizer
from ..clock import Clock
from .failure_reports import FailureReports
from .replica_launch import ReplicaSecrets

MAX_WAIT_SECONDS = 25.0
# The table contains all endpoints, so frequent changes must not cause too much work. Building the
# table takes at most this share of the time; the pauses are at most this long.
BUILD_SHARE = 0.3
MAX_BUILD_PAUSE_SECONDS = 2.0
# Interval at which waiting requests read the version, because another manager may change it.
POLL_SECONDS = 1.0


class GatewayRoutes:
    """Builds the routing table; waiting requests return when it changes."""

    def __init__(
        self,
        store: GatewayStore,
        secrets: ReplicaSecrets,
        clock: Clock,
        wake: Callable[[], None],
        failures: FailureReports,
    ) -> None:
        """``wake`` wakes the loop that runs endpoints."""
        self._store = store
        self._failures = failures
        self._secrets = secrets
        self._clock = clock
        self._wake = wake
        self._table: RoutingTable | None = None
        self._building = asyncio.Lock()
        self._next_build_at = 0.0
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Wake the waiting requests."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self, caller: Caller, version: str, seconds: float) -> RoutingTable | None:
        """Return the table when its version is not ``version``; None after ``seconds``."""
        authorizer.require(caller, "gateway.read-routes")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(max(seconds, 0.0), MAX_WAIT_SECONDS)
        while True:
            changed = self._changed
            table = await self._current()
            left = deadline - loop.time()
            if table.version != version:
                return table
            if left <= 0:
                return None
            try:
                async with asyncio.timeout(min(left, POLL_SECONDS)):
                    await changed.wait()
            except TimeoutError:
                pass

    async def report(self, caller: Caller, report: Mapping[str, Any]) -> None:
        """Store the counts and replica states that a gateway reports; ignore repeated reports."""
        authorizer.require(caller, "gateway.report")
        now = self._clock()
        is_new = await self._store.count(
            report["gateway_id"],
            report["report_id"],
            now,
            [
                EndpointCounts(each["id"], each["requests"], each["errors"])
                for each in report["endpoints"]
                if each["requests"] or each["errors"]
            ],
            [
                TokenCounts(
                    each["id"], each["requests"], each["input_tokens"], each["output_tokens"]
                )
                for each in report["tokens"]
            ],
            report["drained"],
            {each["id"]: each["in_flight"] + each["queued"] for each in report["endpoints"]},
            [
                RevisionCounts(key, counts["requests"], counts["errors"], counts["latency_ms"])
                for each in report["endpoints"]
                for key, counts in each["revisions"].items()
                if counts["requests"] or counts["errors"]
            ],
        )
        if is_new and report["failed"]:
            await self._failures.check(report["failed"])
        # Wake the runner for a request that may wait for the first replica.
        is_waiting = any(each["queued"] and not each["in_flight"] for each in report["endpoints"])
        if report["drained"] or is_waiting:
            self._wake()

    async def _current(self) -> RoutingTable:
        async with self._building:
            table = self._table
            if table is not None and table.version == str(await self._store.routes_version()):
                return table
            now = asyncio.get_running_loop().time
            if (pause := self._next_build_at - now()) > 0:
                await asyncio.sleep(pause)
            began_at = now()
            table = self._table = self._build(await self._store.routes(self._clock()))
            pause = (now() - began_at) / BUILD_SHARE
            self._next_build_at = now() + min(pause, MAX_BUILD_PAUSE_SECONDS)
            return table

    def _build(self, rows: RoutingRows) -> RoutingTable:
        replicas: dict[str, list[ReplicaRoute]] = defaultdict(list)
        for row in rows.replicas:
            replicas[row["endpoint_id"]].append(
                ReplicaRoute(
                    id=row["id"],
                    revision_id=row["revision_id"],
                    url=row["url"],
                    secret=self._secrets.of(row["revision_id"]),
                    is_draining=row["phase"] == Phase.DRAINING,
                    # The health check is NULL if the revision was deleted.
                    health_path=row["health_path"] or "",
                    health_status=row["health_status"] or 0,
                    health_seconds=row["health_seconds"] or 0.0,
                    protocol=Protocol(row["protocol"]),
                )
            )
        tokens: dict[str, list[TokenRoute]] = defaultdict(list)
        for row in rows.tokens:
            expires_at = row["expires_at"]
            tokens[row["endpoint_id"]].append(
                TokenRoute(
                    id=row["id"],
                    digest=row["digest"],
                    networks=tuple(row["networks"]),
                    expires_at=None if expires_at is None else expires_at.timestamp(),
                    requests_per_minute=row["requests_per_minute"],
                    max_concurrent=row["max_concurrent"],
                )
            )
        routes = (
            _endpoint_route(row, tuple(replicas[row["id"]]), tuple(tokens[row["id"]]))
            for row in rows.endpoints
        )
        return RoutingTable(str(rows.version), tuple(routes))


def _endpoint_route(
    row: Mapping[str, Any], replicas: tuple[ReplicaRoute, ...], tokens: tuple[TokenRoute, ...]
) -> EndpointRoute:
    return EndpointRoute(
        id=row["id"],
        name=row["name"],
        owner_id=row["owner_id"],
        is_public=bool(row["is_public"]),
        is_paused=row["is_paused"],
        weights=row["weights"],
        replicas=replicas,
        tokens=tokens,
        health_path=row["health_path"],
        max_queue=row["max_queue"],
        queue_seconds=row["queue_seconds"],
        max_concurrent_per_replica=row["max_concurrent_per_replica"],
        request_seconds=row["request_seconds"],
        max_body_bytes=row["max_body_bytes"],
        prefix_characters=row["prefix_characters"],
        protocol=Protocol(row["protocol"]),
    )
