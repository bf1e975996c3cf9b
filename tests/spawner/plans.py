"""Launch plans for tests of the engines."""

from __future__ import annotations

import os
import uuid
from typing import Any

from bai_services.core.sessions.launch_plan import LaunchPlan


def plan(**changes: Any) -> LaunchPlan:
    """Return a plan like the manager's plans; ``changes`` replace fields of the plan's JSON."""
    data: dict[str, Any] = {
        "session_id": str(uuid.uuid4()),
        "kernel_id": str(uuid.uuid4()),
        "agent_id": "agent-1",
        "name": "lab",
        "user": "ada",
        "engine": "process",
        "endpoint": "",
        "image": "",
        "command": None,
        "uid": os.getuid() or 1000,
        "gid": os.getgid() or 1000,
        "hostname": "main1",
        "slots": {"cpu": 1000, "mem": 2**28},
        "shared_memory_bytes": 2**26,
        "mounts": [],
        "environ": {},
        "injection": {},
        "labels": {},
    }
    return LaunchPlan.from_json(data | changes)
