"""Prometheus metrics of the manager, in a separate registry."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from bai_services.core.accounts.roles import Caller
from bai_services.core.cluster.model import AgentStatus
from bai_services.core.sessions.lifecycle import LIVE, Status
from bai_services.db.counts import CountStore
from bai_services.db.database import Database
from bai_services.db.sessions.rows import SessionRow

from .accounts import authorizer

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Metrics of one manager; two managers in one test do not share them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "bai_requests_total",
            "Number of requests.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self.request_seconds = Histogram(
            "bai_request_duration_seconds",
            "Duration of requests, without long polls and event streams.",
            ["method", "route"],
            registry=self.registry,
        )
        self.sign_ins = Counter(
            "bai_sign_ins_total",
            "Sign-in attempts, by outcome.",
            ["outcome"],
            registry=self.registry,
        )
        self.mails = Counter(
            "bai_mails_total",
            "Deliveries of mails, by outcome (sent, failed: is retried, given-up).",
            ["outcome"],
            registry=self.registry,
        )
        self.sessions = Gauge(
            "bai_sessions", "Live sessions, by status.", ["status"], registry=self.registry
        )
        self.status_changes = Counter(
            "bai_session_steps_total",
            "Status changes of sessions, by new status (SCHEDULED: placed, RUNNING: started, "
            "ERROR: failed).",
            ["status"],
            registry=self.registry,
        )
        self.start_seconds = Histogram(
            "bai_session_start_seconds",
            "Time from the creation of a session to RUNNING.",
            registry=self.registry,
            buckets=(0.5, 1, 2, 4, 8, 15, 30, 60, 300, 1800, 7200),
        )
        self.counter_differences = Gauge(
            "bai_counter_differences",
            "Differences between counters and allocations found by the last audit; should be 0.",
            registry=self.registry,
        )
        self.agents = Gauge("bai_agents", "Agents, by status.", ["status"], registry=self.registry)

    def count_status_change(self, row: SessionRow) -> None:
        """Count a status change; registered with ``Lifecycle.listen``."""
        self.status_changes.labels(row.status).inc()
        if row.status is Status.RUNNING and row.started_at is not None:
            start_seconds = (row.started_at - row.created_at).total_seconds()
            self.start_seconds.observe(max(0.0, start_seconds))

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)


class MetricsEndpoint:
    """The metrics that Prometheus scrapes, with the current numbers of sessions and agents."""

    def __init__(self, database: Database, metrics: Metrics) -> None:
        self._store = CountStore(database)
        self._metrics = metrics

    async def text(self, caller: Caller) -> bytes:
        """Read the numbers of sessions and agents from the database, and return all metrics."""
        authorizer.require(caller, "metrics.read")
        sessions, agents = await self._store.by_status()
        for status in LIVE:
            self._metrics.sessions.labels(status).set(sessions.get(status, 0))
        for agent_status in {*agents, AgentStatus.ALIVE, AgentStatus.LOST}:
            self._metrics.agents.labels(agent_status).set(agents.get(agent_status, 0))
        return self._metrics.text()
