"""Prometheus metrics that the manager counts, in a separate registry."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from bai_services.core.sessions.lifecycle import Status
from bai_services.db.sessions.rows import SessionRow


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
        for outcome in ("sent", "failed", "given-up"):
            self.mails.labels(outcome)
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
        self.wait_seconds = Histogram(
            "bai_session_wait_seconds",
            "Time from the creation or the planned start of a session to its first placement.",
            registry=self.registry,
            buckets=(1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600),
        )
        self.pass_seconds = Histogram(
            "bai_scheduler_pass_seconds",
            "Duration of scheduling passes, with reading and writing the database.",
            registry=self.registry,
            buckets=(0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
        )
        self.placed = Counter(
            "bai_scheduler_placed_total", "Placed sessions.", registry=self.registry
        )
        self.conflicts = Counter(
            "bai_scheduler_conflicts_total",
            "Decisions that were discarded because the database had changed since the snapshot.",
            registry=self.registry,
        )
        self.idle_decisions = Counter(
            "bai_idle_decisions_total",
            "Sessions that an idle checker has stopped (stop) or would have stopped (dry-run).",
            ["decision"],
            registry=self.registry,
        )
        for decision in ("stop", "dry-run"):
            self.idle_decisions.labels(decision)

    def count_status_change(self, row: SessionRow) -> None:
        """Count a status change; registered with ``Lifecycle.listen``."""
        self.status_changes.labels(row.status).inc()
        if row.status is Status.RUNNING and row.started_at is not None:
            start_seconds = (row.started_at - row.created_at).total_seconds()
            self.start_seconds.observe(max(0.0, start_seconds))
        if row.status is Status.SCHEDULED and row.started_at is None:
            since = max(row.created_at, row.starts_at or row.created_at)
            wait_seconds = (row.status_changed_at - since).total_seconds()
            self.wait_seconds.observe(max(0.0, wait_seconds))
