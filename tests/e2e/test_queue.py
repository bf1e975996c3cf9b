"""Many batch sessions with dependencies and priorities on the real Hub.

Their engine starts no process and reports exit code 0 at once. Therefore the test covers only the
queue, and the Hub, manager and agent around it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.noop_engine import URL_VARIABLE, serve_empty_responses
from tests.e2e.sessions import JSON, checked
from tests.hub import ROOT, RunningHub
from tests.testbed.wait import wait_until

pytestmark = pytest.mark.e2e

# Number of sessions; `make soak` runs 500.
SESSIONS = int(os.environ.get("BAI_QUEUE_SESSIONS", "150"))
CHAIN = 5
PRIORITIES = 4
# Number of sessions that can run at the same time. It is much smaller than the number of pending
# sessions, so that the order matters.
CAPACITY = SESSIONS // 12
TIMEOUT_SECONDS = 240
CONFIG = """
c.BaiSpawner.engine_classes = {"process": "tests.testbed.instant_exit_engine.InstantExitEngine"}
c.BaiSpawner.poll_interval = 1
"""


def jobs() -> list[JSON]:
    """Return chains of sessions. In a chain, each session depends on the previous one.

    Chains with the lowest priority come first, and each chain is listed from its end. Therefore the
    expected order of starts differs from the order of creation and from the order of names.
    """
    chains = SESSIONS // CHAIN
    found: list[JSON] = []
    for chain in range(chains):
        names = [f"job-{chain:03}-{link}" for link in range(CHAIN)]
        for link in reversed(range(CHAIN)):
            found.append(
                {
                    "name": names[link],
                    "project": "default",
                    "type": "batch",
                    "startup_command": "true",
                    "resources": {"cpu": "1", "mem": "256m"},
                    "priority": 10 * (1 + chain * PRIORITIES // chains),
                    "dependencies": names[link - 1 : link] if link else [],
                }
            )
    return found


def all_sessions(rest: httpx.Client, **query: Any) -> list[JSON]:
    found: list[JSON] = []
    while True:
        page = checked(
            rest.get("/sessions", params={**query, "limit": 500, "offset": len(found)}), 200
        )
        found += page["items"]
        if len(found) >= page["total"]:
            return found


def time_of(session: JSON, name: str) -> datetime:
    assert session[name], session
    return datetime.fromisoformat(session[name])


def check_order(sessions: list[JSON]) -> None:
    by_id = {session["id"]: session for session in sessions}
    for session in sessions:
        for awaited in session["dependencies"]:
            before = by_id[awaited["id"]]
            assert time_of(before, "terminated_at") <= time_of(session, "scheduled_at"), session[
                "name"
            ]
    # The first sessions of the chains have no dependencies, so their order depends on the priority.
    first = sorted(
        (session for session in sessions if not session["dependencies"]),
        key=lambda session: (time_of(session, "scheduled_at"), -session["priority"]),
    )
    priorities = [session["priority"] for session in first]
    assert priorities == sorted(priorities, reverse=True)


def test_dependencies_and_priorities_decide_the_order(
    own_hub: Callable[..., RunningHub], tmp_path: Path
) -> None:
    config = tmp_path / "instant_exit.py"
    config.write_text(CONFIG)
    with serve_empty_responses() as url:
        hub = own_hub(
            environment={
                "BAI_CONFIG": str(config),
                "BAI_AGENT_CPU": str(CAPACITY),
                "BAI_AGENT_MEM": f"{CAPACITY}g",
                URL_VARIABLE: url,
                "PYTHONPATH": str(ROOT),
            }
        ).start()
        with hub.rest("admin") as admin:
            policy = {"max_concurrent_sessions": None, "max_pending_sessions": None}
            checked(admin.patch("/keypair-policies/default", json=policy), 200)
        with hub.rest("user") as rest:
            created = checked(rest.post("/bulk-sessions", json={"sessions": jobs()}), 201)["items"]
            assert len(created) == SESSIONS

            def are_ended() -> bool:
                page = checked(rest.get("/sessions?status__in=TERMINATED&limit=1"), 200)
                failed = checked(rest.get("/sessions?status__in=ERROR,CANCELLED&limit=1"), 200)
                assert failed["total"] == 0, [s["status_info"] for s in failed["items"]]
                return bool(page["total"] == SESSIONS)

            wait_until(are_ended, TIMEOUT_SECONDS, f"the end of {SESSIONS} sessions")
            sessions = all_sessions(rest)
            assert {(s["status"], s["result"]) for s in sessions} == {("TERMINATED", "success")}
            check_order(sessions)
            # All allocations are released.
            assert checked(rest.get("/allocations"), 200)["total"] == 0
