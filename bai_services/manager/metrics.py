"""Counters that Prometheus reads, in a registry of their own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from bai_services.core.accounts.roles import Caller
from bai_services.core.sessions.lifecycle import LIVE, Status
from bai_services.db.counts import CountStore
from bai_services.db.database import Database
from bai_services.db.sessions.rows import SessionRow

from .accounts import authorizer

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """One per manager: two managers in one process (tests) do not share counts.

    Names begin with ``bai_``; a part of the manager counts on the attribute
    that is named after what it does.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "bai_requests_total",
            "Requests answered.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self.request_seconds = Histogram(
            "bai_request_duration_seconds",
            "How long an answer took; long polls and events are left out.",
            ["method", "route"],
            registry=self.registry,
        )
        self.sign_ins = Counter(
            "bai_sign_ins_total", "Sign-ins by password.", ["outcome"], registry=self.registry
        )
        self.sessions = Gauge(
            "bai_sessions", "Sessions that live, by status.", ["status"], registry=self.registry
        )
        self.steps = Counter(
            "bai_session_steps_total",
            "Steps of sessions, by the status that they led to: SCHEDULED are the decisions of "
            "the scheduler, RUNNING the starts, ERROR the failures.",
            ["status"],
            registry=self.registry,
        )
        self.start_seconds = Histogram(
            "bai_session_start_seconds",
            "From the filing of a session to RUNNING.",
            registry=self.registry,
            buckets=(0.5, 1, 2, 4, 8, 15, 30, 60, 300, 1800, 7200),
        )
        self.counter_differences = Gauge(
            "bai_counter_differences",
            "Differences between counters and allocations that the last audit found; 0 is right.",
            registry=self.registry,
        )
        self.agents = Gauge("bai_agents", "Agents, by status.", ["status"], registry=self.registry)

    def count_step(self, row: SessionRow) -> None:
        """Count a step of a session; ``Lifecycle.listen`` calls it."""
        self.steps.labels(row.status).inc()
        if row.status is Status.RUNNING and row.started_at is not None:
            waited = (row.started_at - row.created_at).total_seconds()
            self.start_seconds.observe(max(0.0, waited))

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self.registry)


class Monitoring:
    """What Prometheus gets: the counters, and the numbers that are counted when it asks."""

    def __init__(self, database: Database, metrics: Metrics) -> None:
        self._store = CountStore(database)
        self._metrics = metrics

    async def text(self, caller: Caller) -> bytes:
        authorizer.require(caller, "metrics.read")
        sessions, agents = await self._store.by_status()
        for status in LIVE:
            self._metrics.sessions.labels(status).set(sessions.get(status, 0))
        for name in {*agents, "ALIVE", "LOST"}:
            self._metrics.agents.labels(name).set(agents.get(name, 0))
        return self._metrics.text()
