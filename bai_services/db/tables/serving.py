"""Endpoints of model serving with their revisions, replicas and tokens; gateways."""

from __future__ import annotations

import sqlalchemy as sa

from .base import UtcDateTime, created_at, identity, metadata, version

endpoints = sa.Table(
    "endpoints",
    metadata,
    identity(),
    created_at(),
    version(),
    # Part of the URL, so it is unique in the installation.
    sa.Column("name", sa.String(64), nullable=False, unique=True),
    sa.Column("owner_id", sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
    sa.Column("project_id", sa.ForeignKey("projects.id", ondelete="CASCADE"), nullable=False),
    sa.Column("is_public", sa.Boolean, nullable=False),
    sa.Column("is_paused", sa.Boolean, nullable=False),
    # The endpoint is deleted when its last replica has ended.
    sa.Column("is_deleting", sa.Boolean, nullable=False),
    sa.Column("replicas", sa.Integer, nullable=False),
    # The rule that sets ``replicas``, NULL for a fixed number (see ``rule_as_json``).
    sa.Column("scaling", sa.JSON(none_as_null=True)),
    # Why the rule has set this number (``CodedText``).
    sa.Column("scaling_reason", sa.JSON(none_as_null=True)),
    # The revision with the last completed rollout, NULL before the first.
    sa.Column("active_revision_id", sa.String(64)),
    # The target revision; it differs from the active revision during a rollout.
    sa.Column("target_revision_id", sa.String(64), nullable=False),
    sa.Column("is_promoted", sa.Boolean, nullable=False),
    # Consecutive failed replicas of the target revision, and the last problem (``CodedText``).
    sa.Column("failures", sa.Integer, nullable=False),
    sa.Column("failed_at", UtcDateTime),
    sa.Column("problem", sa.JSON(none_as_null=True)),
    # Shares of requests by revision.
    sa.Column("weights", sa.JSON, nullable=False),
    # Limits that the gateways enforce.
    sa.Column("max_queue", sa.Integer, nullable=False),
    sa.Column("queue_seconds", sa.Integer, nullable=False),
    sa.Column("max_concurrent_per_replica", sa.Integer, nullable=False),
    sa.Column("request_seconds", sa.Integer, nullable=False),
    sa.Column("max_body_bytes", sa.BigInteger, nullable=False),
    sa.Column("prefix_characters", sa.Integer, nullable=False, server_default="0"),
    # Comma-separated values, with a comma also at both ends.
    sa.Column("tags", sa.Text, nullable=False, server_default=""),
    # Totals of the gateways' reports.
    sa.Column("requests", sa.BigInteger, nullable=False),
    sa.Column("errors", sa.BigInteger, nullable=False),
    sa.Index("ix_endpoints_owner_id", "owner_id"),
    sa.Index("ix_endpoints_project_id", "project_id"),
)

# Names of endpoints, also of deleted ones: clients may still send requests and tokens to the URL of
# a deleted endpoint. There are no foreign keys, because a name outlives owner and project.
endpoint_names = sa.Table(
    "endpoint_names",
    metadata,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("owner_id", sa.String(64), nullable=False),
    sa.Column("project_id", sa.String(64), nullable=False),
    # NULL: the endpoint exists, or was deleted since the last clean-up.
    sa.Column("released_at", UtcDateTime),
    sa.Index("ix_endpoint_names_owner_id", "owner_id"),
)

endpoint_revisions = sa.Table(
    "endpoint_revisions",
    metadata,
    identity(),
    created_at(),
    sa.Column("endpoint_id", sa.ForeignKey("endpoints.id", ondelete="CASCADE"), nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("settings", sa.JSON, nullable=False),  # see RevisionSettings
    # Outcome of the last rollout (see Outcome), NULL before its end.
    sa.Column("outcome", sa.String(16)),
    sa.Column("reason", sa.JSON(none_as_null=True)),
    # Requests during the last rollout.
    sa.Column("requests", sa.BigInteger, nullable=False, default=0, server_default="0"),
    sa.Column("errors", sa.BigInteger, nullable=False, default=0, server_default="0"),
    # Latencies of these requests (see ``core/serving/latency.py``), and the time of their first
    # report.
    sa.Column("latency_ms", sa.JSON(none_as_null=True)),
    sa.Column("observed_at", UtcDateTime),
    sa.UniqueConstraint("endpoint_id", "number"),
)

# The session of a replica has the id of the replica, so a replica cannot create two sessions.
endpoint_replicas = sa.Table(
    "endpoint_replicas",
    metadata,
    identity(),
    created_at(),
    sa.Column("endpoint_id", sa.ForeignKey("endpoints.id", ondelete="CASCADE"), nullable=False),
    sa.Column("revision_id", sa.String(64), nullable=False),
    sa.Column("phase", sa.String(16), nullable=False),  # see Phase
    # URL at which its server listens, empty before the start.
    sa.Column("url", sa.String(255), nullable=False),
    # Time of the last change of the phase.
    sa.Column("changed_at", UtcDateTime, nullable=False),
    # Gateways that have no more requests to the draining replica.
    sa.Column("drained_by", sa.JSON, nullable=False),
    # Why the replica has ended (``CodedText``).
    sa.Column("reason", sa.JSON(none_as_null=True)),
    sa.Index("ix_endpoint_replicas_endpoint_id", "endpoint_id", "phase"),
    sa.Index("ix_endpoint_replicas_phase", "phase", "changed_at"),
)

# The phases of each replica, with their reasons.
endpoint_replica_changes = sa.Table(
    "endpoint_replica_changes",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column(
        "replica_id", sa.ForeignKey("endpoint_replicas.id", ondelete="CASCADE"), nullable=False
    ),
    sa.Column("at", UtcDateTime, nullable=False),
    sa.Column("phase", sa.String(16), nullable=False),
    sa.Column("reason", sa.JSON(none_as_null=True)),  # CodedText
    sa.Index("ix_endpoint_replica_changes_replica_id", "replica_id", "id"),
)

endpoint_tokens = sa.Table(
    "endpoint_tokens",
    metadata,
    identity(),
    created_at(),
    sa.Column("endpoint_id", sa.ForeignKey("endpoints.id", ondelete="CASCADE"), nullable=False),
    sa.Column("name", sa.String(64), nullable=False),
    # SHA-256; the token itself is not stored.
    sa.Column("digest", sa.String(64), nullable=False, unique=True),
    sa.Column("networks", sa.JSON, nullable=False),
    sa.Column("expires_at", UtcDateTime, index=True),
    sa.Column("requests_per_minute", sa.Integer),
    sa.Column("max_concurrent", sa.Integer),
    sa.Column("author", sa.String(64), nullable=False),
    # User of the chat page that uses the token; NULL: a token of the owner.
    sa.Column("user_id", sa.ForeignKey("users.id", ondelete="CASCADE")),
    sa.Column("requests", sa.BigInteger, nullable=False),
    sa.Column("input_tokens", sa.BigInteger, nullable=False),
    sa.Column("output_tokens", sa.BigInteger, nullable=False),
    sa.Column("last_used_at", UtcDateTime),
    sa.UniqueConstraint("endpoint_id", "name"),
    sa.Index("ix_endpoint_tokens_user_id", "user_id", "endpoint_id"),
)

# Requests by day (UTC) and name of the token, also of revoked tokens. There are no foreign keys:
# statistics outlive the endpoints.
endpoint_usage_days = sa.Table(
    "endpoint_usage_days",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("endpoint_id", sa.String(64), nullable=False),
    sa.Column("endpoint", sa.String(64), nullable=False),
    sa.Column("owner_id", sa.String(64), nullable=False),
    sa.Column("project_id", sa.String(64), nullable=False),
    sa.Column("domain", sa.String(64), nullable=False),
    sa.Column("day", UtcDateTime, nullable=False),
    # "" stands for all tokens of the chat page, "*" for requests without a token.
    sa.Column("token", sa.String(64), nullable=False),
    sa.Column("requests", sa.BigInteger, nullable=False),
    sa.Column("input_tokens", sa.BigInteger, nullable=False),
    sa.Column("output_tokens", sa.BigInteger, nullable=False),
    sa.UniqueConstraint("endpoint_id", "day", "token"),
    sa.Index("ix_endpoint_usage_days_day", "day"),
    sa.Index("ix_endpoint_usage_days_owner_id", "owner_id", "day"),
)

# Changes of the number of replicas by a rule.
endpoint_scalings = sa.Table(
    "endpoint_scalings",
    metadata,
    identity(),
    created_at(),
    sa.Column("endpoint_id", sa.ForeignKey("endpoints.id", ondelete="CASCADE"), nullable=False),
    sa.Column("former", sa.Integer, nullable=False),
    sa.Column("replicas", sa.Integer, nullable=False),
    sa.Column("reason", sa.JSON, nullable=False),  # CodedText
    sa.Index("ix_endpoint_scalings_endpoint_id", "endpoint_id", "created_at"),
)

# Samples of endpoints with a rule. ``load`` is NULL while it is unknown.
endpoint_loads = sa.Table(
    "endpoint_loads",
    metadata,
    sa.Column("endpoint_id", sa.ForeignKey("endpoints.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("at", UtcDateTime, primary_key=True),
    sa.Column("load", sa.Float),
    sa.Column("replicas", sa.Integer, nullable=False),
    sa.Column("ready", sa.Integer, nullable=False),
    sa.Index("ix_endpoint_loads_at", "at"),
)

# A trial has a session with the trial's id; no gateway forwards requests to it.
endpoint_trials = sa.Table(
    "endpoint_trials",
    metadata,
    identity(),
    created_at(),
    sa.Column("owner_id", sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
    sa.Column("settings", sa.JSON, nullable=False),  # see RevisionSettings
    # URL at which its server listens, empty before the start.
    sa.Column("url", sa.String(255), nullable=False),
    # A description of the state (``CodedText``).
    sa.Column("state", sa.JSON, nullable=False),
    sa.Column("is_healthy", sa.Boolean),  # NULL until it ends
    sa.Column("ended_at", UtcDateTime),
    # The last lines of the output, after the end.
    sa.Column("log", sa.Text, nullable=False),
    sa.Index("ix_endpoint_trials_owner_id", "owner_id"),
    sa.Index("ix_endpoint_trials_ended_at", "ended_at"),
)

gateways = sa.Table(
    "gateways",
    metadata,
    identity(),
    # A repeated report counts once.
    sa.Column("last_report_id", sa.String(64), nullable=False),
    sa.Column("reported_at", UtcDateTime, nullable=False),
)

# The last reported load of endpoints with a rule, if it is not 0. A foreign key is not needed,
# because gateways report the load 0 for a deleted endpoint.
gateway_loads = sa.Table(
    "gateway_loads",
    metadata,
    sa.Column("gateway_id", sa.ForeignKey("gateways.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("endpoint_id", sa.String(64), primary_key=True),
    sa.Column("load", sa.BigInteger, nullable=False),
)
