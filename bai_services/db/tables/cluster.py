"""Resource groups, agents, devices, images, presets."""

from __future__ import annotations

import sqlalchemy as sa

from .base import CapSlots, Slots, UtcDateTime, created_at, identity, metadata

resource_groups = sa.Table(
    "resource_groups",
    metadata,
    sa.Column("name", sa.String(64), primary_key=True),
    created_at(),
    sa.Column("description", sa.String(512), nullable=False, default=""),
    sa.Column("is_active", sa.Boolean, nullable=False, default=True),
    sa.Column("is_default", sa.Boolean, nullable=False, default=False),
    sa.Column("is_public", sa.Boolean, nullable=False, default=True),
    sa.Column("engine", sa.String(16), nullable=False, default="process"),
    sa.Column("scheduler", sa.String(16), nullable=False, default="fifo"),
    sa.Column("scheduler_opts", sa.JSON, nullable=False),
    sa.Column("allowed_session_types", sa.JSON, nullable=False),
    # Caps on all sessions of the group together; a missing slot is unlimited.
    sa.Column("total_resource_slots", CapSlots, nullable=False, default=dict, server_default="{}"),
    sa.Column("max_concurrent_sessions", sa.Integer),
)

# Access to resource groups that are not public; kind is domain, project, user or keypair.
resource_group_links = sa.Table(
    "resource_group_links",
    metadata,
    sa.Column(
        "resource_group",
        sa.ForeignKey("resource_groups.name", ondelete="CASCADE"),
        primary_key=True,
    ),
    sa.Column("kind", sa.String(16), primary_key=True),
    sa.Column("target", sa.String(64), primary_key=True),
)

agents = sa.Table(
    "agents",
    metadata,
    identity(),
    created_at(),
    sa.Column("resource_group", sa.ForeignKey("resource_groups.name"), nullable=False, index=True),
    sa.Column("status", sa.String(16), nullable=False),  # ALIVE, LOST, TERMINATED
    sa.Column("status_changed_at", UtcDateTime, nullable=False),
    sa.Column("last_heartbeat_at", UtcDateTime, nullable=False),
    sa.Column("schedulable", sa.Boolean, nullable=False, default=True),
    sa.Column("engine", sa.String(16), nullable=False),
    # Docker endpoint of this agent (unix, ssh or tcp URL); empty for the process engine.
    sa.Column("endpoint", sa.String(255), nullable=False, default=""),
    sa.Column("architecture", sa.String(32), nullable=False),
    sa.Column("version", sa.String(64), nullable=False),
    # Machine facts reported by the agent (hostname, os, isolation, notices …).
    sa.Column("facts", sa.JSON, nullable=False),
    # The problem of each storage host that does not work there (``StorageProblem``), by its name.
    sa.Column("storage_problems", sa.JSON, nullable=False, default=dict, server_default="{}"),
    # No subnet of its network pool is free, so it cannot create networks of sessions.
    sa.Column(
        "is_network_full", sa.Boolean, nullable=False, default=False, server_default=sa.false()
    ),
)

# Invitations of machines; the token is used once, and only its hash is stored.
agent_invitations = sa.Table(
    "agent_invitations",
    metadata,
    identity(),
    created_at(),
    sa.Column("created_by", sa.String(64), nullable=False),
    sa.Column("token_hash", sa.String(64), nullable=False, unique=True),
    sa.Column(
        "resource_group",
        sa.ForeignKey("resource_groups.name", ondelete="CASCADE"),
        nullable=False,
        index=True,
    ),
    sa.Column("expires_at", UtcDateTime, nullable=False),
    sa.Column("used_at", UtcDateTime),
    sa.Column("agent_id", sa.String(64)),
)

# Credentials of agents that have joined with an invitation. The row is created before the agent:
# the first heartbeat creates the agent.
agent_credentials = sa.Table(
    "agent_credentials",
    metadata,
    sa.Column("agent_id", sa.String(64), primary_key=True),
    created_at(),
    sa.Column("token_hash", sa.String(64), nullable=False, unique=True),
    sa.Column("invitation_id", sa.String(64), nullable=False),
    # Initial resource group of the agent.
    sa.Column("resource_group", sa.String(64), nullable=False),
)

# The last check of each agent: requested by `bai admin cluster doctor`, reported by the agent.
agent_checks = sa.Table(
    "agent_checks",
    metadata,
    sa.Column("agent_id", sa.ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("id", sa.String(64), nullable=False),
    created_at(),
    # NULL until the agent has reported.
    sa.Column("result", sa.JSON(none_as_null=True)),
)

# The last request to each agent to list or remove its unused images.
image_prunes = sa.Table(
    "image_prunes",
    metadata,
    sa.Column("agent_id", sa.ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("id", sa.String(64), nullable=False),
    created_at(),
    sa.Column("request", sa.JSON, nullable=False),
    # NULL until the agent has reported.
    sa.Column("result", sa.JSON(none_as_null=True)),
)

# The open request to each agent to read the SBOM of an image; deleted when it is answered.
image_sboms = sa.Table(
    "image_sboms",
    metadata,
    sa.Column("agent_id", sa.ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("id", sa.String(64), nullable=False),
    created_at(),
    sa.Column("request", sa.JSON, nullable=False),
    # NULL until the agent has reported.
    sa.Column("result", sa.JSON(none_as_null=True)),
)

# Capacity and usage of cpu and mem; for device slots, see ``devices``.
agent_slots = sa.Table(
    "agent_slots",
    metadata,
    sa.Column("agent_id", sa.ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("slot", sa.String(64), primary_key=True),
    sa.Column("capacity", sa.BigInteger, nullable=False),
    sa.Column("used", sa.BigInteger, nullable=False, default=0),
    sa.CheckConstraint("used >= 0", name="not_negative"),
)

devices = sa.Table(
    "devices",
    metadata,
    sa.Column("id", sa.String(128), primary_key=True),  # unique over all agents
    sa.Column(
        "agent_id", sa.ForeignKey("agents.id", ondelete="CASCADE"), nullable=False, index=True
    ),
    sa.Column("family", sa.String(32), nullable=False),  # cuda, rocm …
    sa.Column("index", sa.Integer, nullable=False),
    sa.Column("model", sa.String(128), nullable=False),
    sa.Column("memory_bytes", sa.BigInteger),  # NULL: unknown
    sa.Column("numa_node", sa.Integer),
    sa.Column("is_simulated", sa.Boolean, nullable=False, default=False),
    sa.Column("is_healthy", sa.Boolean, nullable=False, default=True),
    # In thousandths of the device; a session with the whole device uses its full capacity.
    sa.Column("capacity", sa.Integer, nullable=False, default=1000),
    sa.Column("used", sa.Integer, nullable=False, default=0),
    sa.Column("facts", sa.JSON, nullable=False),
    sa.CheckConstraint("used >= 0 AND used <= capacity", name="within_device"),
)

images = sa.Table(
    "images",
    metadata,
    identity(),
    created_at(),
    sa.Column("name", sa.String(255), nullable=False),  # [registry/][project/]image:tag
    sa.Column("architecture", sa.String(32), nullable=False),
    sa.Column("description", sa.String(512), nullable=False, default=""),
    sa.Column("digest", sa.String(128), nullable=False, default=""),
    sa.Column("size_bytes", sa.BigInteger, nullable=False, default=0),
    sa.Column("labels", sa.JSON, nullable=False),
    sa.Column("min_slots", Slots, nullable=False),
    sa.Column("max_slots", Slots, nullable=False),
    sa.Column("is_active", sa.Boolean, nullable=False, default=True),
    # Digest of the tag in the registry when an agent last queried it; empty: never.
    sa.Column("registry_digest", sa.String(128), nullable=False, default="", server_default=""),
    # Host of the registry in the name; ``docker.io`` for a name without a registry.
    sa.Column("registry", sa.String(255), nullable=False, default="", server_default=""),
    # Why the image remains although its tag was deleted in the registry; empty: the tag exists.
    sa.Column("registry_problem", sa.String(255), nullable=False, default="", server_default=""),
    sa.UniqueConstraint("name", "architecture"),
)

# See ``ImageRegistry`` in ``core/cluster/registries.py``.
image_registries = sa.Table(
    "image_registries",
    metadata,
    identity(),
    created_at(),
    sa.Column("name", sa.String(64), nullable=False, unique=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("url", sa.String(255), nullable=False),
    sa.Column("host", sa.String(255), nullable=False, unique=True),
    sa.Column("username", sa.String(255), nullable=False),
    sa.Column("password_encrypted", sa.Text, nullable=False),  # empty: none
    sa.Column("ca_certificate", sa.Text, nullable=False),
    sa.Column("repositories", sa.JSON, nullable=False),
    sa.Column("patterns", sa.JSON, nullable=False),
    sa.Column("rescan_seconds", sa.Integer, nullable=False),
    sa.Column("is_enabled", sa.Boolean, nullable=False),
    sa.Column("activates_images", sa.Boolean, nullable=False),
    sa.Column("labelled_only", sa.Boolean, nullable=False),
    sa.Column("is_global", sa.Boolean, nullable=False),
    # Id of the scan, so that results of a cancelled scan are not stored for the next scan.
    sa.Column("scan_id", sa.String(64), nullable=False, default=""),
    sa.Column("scan_status", sa.String(16), nullable=False),
    sa.Column("scan_requested_by", sa.String(64), nullable=False, default=""),
    sa.Column("scan_started_at", UtcDateTime),
    sa.Column("scan_ended_at", UtcDateTime),
    sa.Column("scan_tags", sa.Integer, nullable=False, default=0),
    sa.Column("scan_checked", sa.Integer, nullable=False, default=0),
    sa.Column("scan_new", sa.Integer, nullable=False, default=0),
    sa.Column("scan_changed", sa.Integer, nullable=False, default=0),
    sa.Column("scan_skipped", sa.Integer, nullable=False, default=0),
    sa.Column("scan_removed", sa.Integer, nullable=False, default=0, server_default="0"),
    sa.Column("scan_problem", sa.String(500), nullable=False, default=""),
)

# Projects that may use the images of a registry that is not global.
image_registry_projects = sa.Table(
    "image_registry_projects",
    metadata,
    sa.Column(
        "registry_id", sa.ForeignKey("image_registries.id", ondelete="CASCADE"), primary_key=True
    ),
    sa.Column(
        "project_id", sa.ForeignKey("projects.id", ondelete="CASCADE"), primary_key=True, index=True
    ),
)

# Requests to pull images to agents; at most one for each image and agent.
image_pulls = sa.Table(
    "image_pulls",
    metadata,
    identity(),
    created_at(),
    sa.Column("changed_at", UtcDateTime, nullable=False),
    sa.Column("image_id", sa.ForeignKey("images.id", ondelete="CASCADE"), nullable=False),
    sa.Column(
        "agent_id", sa.ForeignKey("agents.id", ondelete="CASCADE"), nullable=False, index=True
    ),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("percent", sa.Integer),
    sa.Column("message", sa.String(500), nullable=False, default=""),
    sa.Column("requested_by", sa.String(64), nullable=False),
    sa.UniqueConstraint("image_id", "agent_id"),
)

# Commits of sessions, and the images that they make. See ``core/cluster/custom_images.py``.
custom_images = sa.Table(
    "custom_images",
    metadata,
    identity(),
    created_at(),
    sa.Column("changed_at", UtcDateTime, nullable=False),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("description", sa.String(512), nullable=False, default=""),
    sa.Column("image", sa.String(255), nullable=False),
    # NULL until the commit is done.
    sa.Column("image_id", sa.ForeignKey("images.id", ondelete="CASCADE"), index=True),
    sa.Column("base_image", sa.String(255), nullable=False),
    sa.Column("architecture", sa.String(32), nullable=False),
    sa.Column("owner_id", sa.ForeignKey("users.id"), nullable=False, index=True),
    sa.Column("project_id", sa.ForeignKey("projects.id"), nullable=False, index=True),
    sa.Column("visibility", sa.String(16), nullable=False),
    sa.Column("is_publish_requested", sa.Boolean, nullable=False, default=False),
    sa.Column("labels", sa.JSON, nullable=False),
    sa.Column("session_id", sa.String(64), nullable=False),
    sa.Column("kernel_id", sa.String(64), nullable=False),
    sa.Column("session_name", sa.String(64), nullable=False),
    sa.Column("agent_id", sa.String(64), nullable=False),
    sa.Column("status", sa.String(16), nullable=False, index=True),
    sa.Column("percent", sa.Integer),
    sa.Column("message", sa.String(500), nullable=False, default=""),
    sa.Column("size_bytes", sa.BigInteger, nullable=False, default=0),
    sa.Column("digest", sa.String(128), nullable=False, default=""),
    sa.Column("is_built", sa.Boolean, nullable=False, default=False),
    # Files of the recipe, and the output of the build.
    sa.Column("recipe", sa.JSON(none_as_null=True)),
    sa.Column("log", sa.Text, nullable=False, default=""),
)

# Names of deleted custom images: agents remove their copies.
deleted_custom_images = sa.Table(
    "deleted_custom_images",
    metadata,
    sa.Column("image", sa.String(255), primary_key=True),
)

image_aliases = sa.Table(
    "image_aliases",
    metadata,
    sa.Column("alias", sa.String(64), primary_key=True),
    created_at(),
    sa.Column(
        "image_id", sa.ForeignKey("images.id", ondelete="CASCADE"), nullable=False, index=True
    ),
)

presets = sa.Table(
    "presets",
    metadata,
    identity(),
    created_at(),
    sa.Column("name", sa.String(64), nullable=False),
    # Empty: valid in every group.
    sa.Column("resource_group", sa.String(64), nullable=False, default=""),
    sa.Column("resource_slots", Slots, nullable=False),
    sa.Column("shared_memory_bytes", sa.BigInteger),
    sa.UniqueConstraint("name", "resource_group"),
)
