"""Sessions, their kernels, allocations, usage, dependencies, status history and templates."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from .base import Slots, UtcDateTime, created_at, identity, metadata

# Condition of an index that contains only live sessions.
_IS_LIVE = sa.text("live_name IS NOT NULL")
_IF_LIVE: dict[str, Any] = {"sqlite_where": _IS_LIVE, "postgresql_where": _IS_LIVE}
# Conditions of two partial indexes: resources in use, and released resources.
_IS_HELD, _IS_FREED = sa.text("freed_at IS NULL"), sa.text("freed_at IS NOT NULL")
_IF_HELD: dict[str, Any] = {"sqlite_where": _IS_HELD, "postgresql_where": _IS_HELD}
_IF_FREED: dict[str, Any] = {"sqlite_where": _IS_FREED, "postgresql_where": _IS_FREED}

sessions = sa.Table(
    "sessions",
    metadata,
    identity(),
    created_at(),
    # Sequence number in order of creation, for sessions that were created at the same time.
    sa.Column("sequence", sa.BigInteger, nullable=False, unique=True),
    sa.Column("name", sa.String(64), nullable=False),
    # The name while the session is live, then NULL; unique among the owner's live sessions.
    sa.Column("live_name", sa.String(64)),
    sa.Column("type", sa.String(16), nullable=False),
    sa.Column("is_pipeline_task", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("owner_id", sa.ForeignKey("users.id"), nullable=False),
    sa.Column("access_key", sa.String(20), nullable=False),
    sa.Column("domain", sa.ForeignKey("domains.name"), nullable=False),
    sa.Column("project_id", sa.ForeignKey("projects.id"), nullable=False),
    sa.Column("resource_group", sa.ForeignKey("resource_groups.name"), nullable=False),
    sa.Column("image", sa.String(255), nullable=False),
    sa.Column("architecture", sa.String(32), nullable=False),
    sa.Column("priority", sa.Integer, nullable=False, default=10),
    sa.Column("requested_slots", Slots, nullable=False),
    sa.Column("shared_memory_bytes", sa.BigInteger, nullable=False),
    # [{vfolder_id, vfolder, host, path, subpath, permission, …}], resolved at creation.
    sa.Column("mounts", sa.JSON, nullable=False),
    sa.Column("environ", sa.JSON, nullable=False),
    sa.Column("options", sa.JSON, nullable=False),
    # Number of kernels, which start and end together; each gets ``requested_slots``.
    sa.Column("cluster_size", sa.Integer, nullable=False, default=1, server_default="1"),
    sa.Column(
        "cluster_mode",
        sa.String(16),
        nullable=False,
        default="single-node",
        server_default="single-node",
    ),
    # SHA-256 of the specification. A request with the name and hash of a live session returns that
    # session.
    sa.Column("request_hash", sa.String(64), nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("status_info", sa.String(1024), nullable=False, default=""),
    # ``status_info`` as a code with values (``CodedText``), if it has a code. For a pending
    # session, the codes are in ``reasons``.
    sa.Column("status_coded", sa.JSON(none_as_null=True)),
    # Why the session is pending: [{check, passed, message, coded, …}]; updated after scheduling
    # passes.
    sa.Column("reasons", sa.JSON, nullable=False),
    # Position in the queue of its resource group, from 1, while the session is pending.
    sa.Column("position", sa.Integer),
    # Estimated start {starts_at, certainty} while the session is pending.
    sa.Column("estimate", sa.JSON(none_as_null=True)),
    sa.Column("notices", sa.JSON, nullable=False),
    sa.Column("result", sa.String(16), nullable=False, default="undefined"),
    sa.Column("exit_code", sa.Integer),
    # Command of a batch session.
    sa.Column("startup_command", sa.Text),
    # Earliest start of a batch session.
    sa.Column("starts_at", UtcDateTime),
    # Maximum run time of a batch session.
    sa.Column("batch_timeout_seconds", sa.Integer),
    # Extension of the lifetime by the owner, in addition to the limit of the keypair's policy.
    sa.Column(
        "lifetime_extension_seconds", sa.Integer, nullable=False, default=0, server_default="0"
    ),
    # Time of the last activity; updated only if the keypair's policy has an idle timeout.
    sa.Column("used_at", UtcDateTime),
    # Time of the last activity report by the session itself; updated like ``used_at``.
    sa.Column("use_heard_at", UtcDateTime),
    # First report after the idle timeout was introduced or reduced.
    sa.Column("use_known_since", UtcDateTime),
    # URL that is called for each status change; its delivery state is in ``session_callbacks``.
    sa.Column("callback_url", sa.String(2048)),
    # Rank among the owner's sessions of one priority, and whether the session may be preempted.
    sa.Column("job_priority", sa.Integer, nullable=False, default=0, server_default="0"),
    sa.Column("is_preemptible", sa.Boolean, nullable=False, default=True, server_default=sa.true()),
    # Number of requeues after a run, time of the last requeue, and whether the session is ending
    # because of a preemption or a lost agent, and will be requeued.
    sa.Column("restart_count", sa.Integer, nullable=False, default=0, server_default="0"),
    sa.Column("requeued_at", UtcDateTime),
    sa.Column(
        "is_requeued_at_end", sa.Boolean, nullable=False, default=False, server_default=sa.false()
    ),
    # Owner of the session's server at the Hub.
    sa.Column("hub_user", sa.String(64), nullable=False),
    # Name of the session's server at the Hub; "": the user's default server.
    sa.Column("hub_server", sa.String(64), nullable=False),
    # Who starts the session: manager, hub or agent.
    sa.Column("started_by", sa.String(16), nullable=False),
    # The agent with the home directory of a stopped session that will run again. The session can
    # run only there.
    sa.Column("home_agent_id", sa.String(64)),
    # The span that created the session, in the format of the W3C header ``traceparent``; NULL
    # without tracing.
    sa.Column("trace", sa.String(55)),
    sa.Column("status_changed_at", UtcDateTime, nullable=False),
    sa.Column("scheduled_at", UtcDateTime),
    sa.Column("started_at", UtcDateTime),
    sa.Column("terminated_at", UtcDateTime),
    sa.UniqueConstraint("owner_id", "live_name"),
    sa.Index("ix_sessions_hub_server", "hub_user", "hub_server"),
    sa.Index("ix_sessions_status_owner", "status", "owner_id"),
    # Pages of the list are read in the order of these indexes, without sorting. Each index contains
    # the complete order of the list, which ends with ``created_at, id``.
    sa.Index("ix_sessions_created_at", "created_at", "id"),
    sa.Index("ix_sessions_owner_created", "owner_id", "created_at", "id"),
    sa.Index("ix_sessions_project_created", "project_id", "created_at", "id"),
    sa.Index("ix_sessions_name", "name", "created_at", "id"),
    sa.Index("ix_sessions_started_at", "started_at", "created_at", "id"),
    sa.Index("ix_sessions_owner_started", "owner_id", "started_at", "created_at", "id"),
    # For live sessions, which may be few among many ended sessions.
    sa.Index("ix_sessions_live", "created_at", "id", **_IF_LIVE),
    sa.Index("ix_sessions_live_owner", "owner_id", "created_at", "id", **_IF_LIVE),
)

kernels = sa.Table(
    "kernels",
    metadata,
    identity(),
    created_at(),
    sa.Column(
        "session_id", sa.ForeignKey("sessions.id", ondelete="CASCADE"), nullable=False, index=True
    ),
    sa.Column("role", sa.String(8), nullable=False),  # main, sub
    sa.Column("index", sa.Integer, nullable=False),
    sa.Column("hostname", sa.String(64), nullable=False),  # main1, sub1 …
    sa.Column("agent_id", sa.String(64), index=True),
    # Progress of the preparation reported by the agent: {stage, message, percent}.
    sa.Column("progress", sa.JSON, nullable=False),
    sa.Column("injection", sa.JSON(none_as_null=True)),
    # When the spawner first received the launch plan; a container may exist from then on.
    sa.Column("launched_at", UtcDateTime),
    sa.Column("container_id", sa.String(128)),
    # The agent stops the kernel when no heartbeat was acknowledged for this time; NULL: never.
    sa.Column("fence_seconds", sa.Integer),
    sa.Column("usage", sa.JSON(none_as_null=True)),
    # When a heartbeat of its agent last reported the kernel.
    sa.Column("last_seen_at", UtcDateTime),
    sa.Column("log", sa.Text),
    # For the removal of old logs.
    sa.Index(
        "ix_kernels_stored_log",
        "created_at",
        sqlite_where=sa.text("log IS NOT NULL"),
        postgresql_where=sa.text("log IS NOT NULL"),
    ),
)

# The output of the earlier attempts of kernels whose session has returned to the queue.
kernel_attempts = sa.Table(
    "kernel_attempts",
    metadata,
    sa.Column("kernel_id", sa.ForeignKey("kernels.id", ondelete="CASCADE"), primary_key=True),
    # The restart count of the session during the attempt.
    sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("agent_id", sa.String(64)),
    sa.Column("ended_at", UtcDateTime, nullable=False),
    sa.Column("reason", sa.String(1024), nullable=False),
    # Empty until the output is known.
    sa.Column("log", sa.Text, nullable=False),
)

# The ledger: one row per allocated amount, never deleted; ``freed_at`` is set on release.
allocations = sa.Table(
    "allocations",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("session_id", sa.ForeignKey("sessions.id"), nullable=False, index=True),
    sa.Column("kernel_id", sa.ForeignKey("kernels.id"), nullable=False),
    sa.Column("agent_id", sa.String(64), nullable=False),
    sa.Column("device_id", sa.String(128)),  # None for cpu and mem
    sa.Column("slot", sa.String(64), nullable=False),
    sa.Column("amount", sa.BigInteger, nullable=False),
    sa.Column("allocated_at", UtcDateTime, nullable=False),
    sa.Column("freed_at", UtcDateTime),
    # Live and released rows have separate indexes. With one index of all ``freed_at``, SQLite would
    # read all live rows to find the rows of one session.
    sa.Index("ix_allocations_live", "agent_id", **_IF_HELD),
    sa.Index("ix_allocations_freed_at", "freed_at", **_IF_FREED),
)

# Usage of each scope; the slot "sessions" is the number of sessions.
scope_usage = sa.Table(
    "scope_usage",
    metadata,
    sa.Column("scope", sa.String(16), primary_key=True),  # see ScopeKind
    sa.Column("scope_id", sa.String(64), primary_key=True),
    sa.Column("slot", sa.String(64), primary_key=True),
    sa.Column("used", sa.BigInteger, nullable=False, default=0),
    sa.CheckConstraint("used >= 0", name="not_negative"),
)

# Mean usage of a kernel in intervals of 15 s (kept for 1 hour) and of 300 s (kept for 30 days).
# There is no foreign key: a heartbeat may report a kernel that was deleted in the meantime.
usage_samples = sa.Table(
    "usage_samples",
    metadata,
    sa.Column("kernel_id", sa.String(36), primary_key=True),
    sa.Column("interval_seconds", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("at", UtcDateTime, primary_key=True),  # start of the interval
    sa.Column("metrics", sa.JSON, nullable=False),
    sa.Column("devices", sa.JSON, nullable=False),  # metrics by device id
    sa.Index("ix_usage_samples_interval_seconds", "interval_seconds", "at"),
)

session_dependencies = sa.Table(
    "session_dependencies",
    metadata,
    sa.Column("session_id", sa.ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True),
    sa.Column(
        "depends_on", sa.ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True, index=True
    ),
)

status_history = sa.Table(
    "status_history",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column(
        "session_id", sa.ForeignKey("sessions.id", ondelete="CASCADE"), nullable=False, index=True
    ),
    sa.Column("at", UtcDateTime, nullable=False),
    sa.Column("event", sa.String(32), nullable=False),
    sa.Column("from_status", sa.String(16), nullable=False),
    sa.Column("to_status", sa.String(16), nullable=False),
    sa.Column("reason", sa.String(1024), nullable=False, default=""),
    # ``reason`` as a code with values (``CodedText``), if it has a code.
    sa.Column("reason_coded", sa.JSON(none_as_null=True)),
)

# Reusable session requests; scope is "user:ID", "project:ID" or "domain:NAME".
session_templates = sa.Table(
    "session_templates",
    metadata,
    identity(),
    created_at(),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("description", sa.String(512), nullable=False, default=""),
    sa.Column("scope", sa.String(80), nullable=False),
    sa.Column("owner_id", sa.ForeignKey("users.id", ondelete="CASCADE"), index=True),
    sa.Column("project_id", sa.ForeignKey("projects.id", ondelete="CASCADE"), index=True),
    sa.Column("domain", sa.ForeignKey("domains.name", ondelete="CASCADE"), nullable=False),
    # Body of a request to create a session; validated when it is stored and at each use.
    sa.Column("request", sa.JSON, nullable=False),
    sa.Column("changed_at", UtcDateTime, nullable=False),
    sa.UniqueConstraint("scope", "name"),
)

# Counters by name; "sessions" is the last sequence number of a session.
counters = sa.Table(
    "counters",
    metadata,
    sa.Column("name", sa.String(32), primary_key=True),
    sa.Column("value", sa.BigInteger, nullable=False),
)
