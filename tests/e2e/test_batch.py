"""Batch sessions on each engine: output, exit code, failure, timeout, dependencies."""

from __future__ import annotations

import httpx
import pytest

from tests.e2e.sessions import JSON, checked, wait_for
from tests.hub import RunningHub
from tests.testbed.wait import wait_until

pytestmark = pytest.mark.e2e

BATCH = {"type": "batch", "project": "default", "resources": {"cpu": "1", "mem": "512m"}}


def wait_for_end(rest: httpx.Client, session: JSON, status: str = "TERMINATED") -> JSON:
    return wait_for(rest, session["id"], status)


def log_of(rest: httpx.Client, session: JSON) -> str:
    """Wait until the session's log is not empty and return it.

    The log of an ended session is stored when the Hub has stopped the session's server. This can
    be later than the agent's report that the session has ended.
    """
    path = f"/sessions/{session['id']}/logs"
    return wait_until(
        lambda: str(checked(rest.get(path), 200)["log"]), 30, "the log of the session"
    )


def test_batch_sessions_report_result_exit_code_and_log(any_hub: RunningHub) -> None:
    jobs = [
        {"name": "e2e-load", "startup_command": "id -u; pwd; echo to stderr >&2"},
        {"name": "e2e-train", "startup_command": "exit 3", "dependencies": ["e2e-load"]},
        {"name": "e2e-test", "startup_command": "true", "dependencies": ["e2e-train"]},
        {"name": "e2e-long", "startup_command": "echo on; sleep 600", "batch_timeout": 2},
    ]
    with any_hub.rest("user") as rest:
        body = {"sessions": [{**BATCH, **job} for job in jobs]}
        load, train, test, long = checked(rest.post("/bulk-sessions", json=body), 201)["items"]

        done = wait_for_end(rest, load)
        assert (done["result"], done["exit_code"]) == ("success", 0)
        assert done["status_info"] == "the command exited with code 0"
        starters = {"process": "manager", "docker": "agent"}
        assert done["started_by"] == starters[any_hub.engine]
        # stdout and stderr are separate pipes, so the order of their lines in the log can differ.
        lines = log_of(rest, load).splitlines()
        lines.remove("to stderr")
        uid, home = lines
        assert uid.isdigit()
        if any_hub.engine == "docker":
            assert home == "/home/work"

        done = wait_for_end(rest, train)
        assert (done["result"], done["exit_code"]) == ("failure", 3)
        done = wait_for_end(rest, test, "CANCELLED")
        assert done["status_info"].startswith(
            "DEPENDENCY_FAILED: its dependency, session e2e-train"
        )

        done = wait_for_end(rest, long)
        assert done["result"] == "failure"
        assert done["status_info"].startswith("BATCH_TIMEOUT_EXCEEDED")
        assert log_of(rest, long) == "on\n"


def test_the_url_of_a_batch_session_exposes_nothing(any_hub: RunningHub) -> None:
    with any_hub.rest("user") as rest:
        job = {**BATCH, "name": "e2e-quiet", "startup_command": "echo secret; sleep 600"}
        session = checked(rest.post("/sessions", json=job), 201)
        running = wait_for(rest, session["id"], "RUNNING")
        answer = httpx.get(any_hub.url + running["url"])
        assert (answer.status_code, answer.text) == (302, "")
        # The Hub has no server for the session, so the Hub redirects to its page that asks for a
        # sign-in.
        assert answer.headers["Location"].startswith("/hub/")
        assert log_of(rest, session) == "secret\n"
        if any_hub.engine == "process":
            # The session is a server of the Hub, so no other server can be attached to it.
            refusal = checked(rest.post(f"/sessions/{session['id']}/server"), 409)
            assert "runs only its command" in refusal["message"]
        checked(rest.delete(f"/sessions/{session['id']}"), 202)
        done = wait_for_end(rest, session)
        assert (done["result"], done["status_info"]) == ("undefined", "stopped by user")
        assert log_of(rest, session) == "secret\n"
