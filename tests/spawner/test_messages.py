"""Messages of the spawner: plans, logs, refusals, progress."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bai_services.core import errors
from bai_services.core.sessions.launch_plan import LaunchPlan
from bai_services.i18n.catalogue import LANGUAGES, translator
from bai_spawner import refusals
from bai_spawner.engines.base import EngineError, EngineUnreachable, Exit, Running, tail
from bai_spawner.progress import progress_event
from bai_spawner.sessions import truncated
from tests.spawner.plans import plan

ENGLISH = translator("en")
PAGE = "/services/bai/sessions/1"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"session_id": "../x"}, id="an id that is a path"),
        pytest.param({"kernel_id": "x"}, id="an id that is no uuid"),
        pytest.param({"uid": "root"}, id="a user that is no number"),
        pytest.param({"mounts": [{"source": "x", "target": "/home/work/x"}]}, id="no path"),
        pytest.param({"mounts": [{"source": "/x", "target": "/home/../etc"}]}, id="a way out"),
        pytest.param({"mounts": [{"source": "/x"}]}, id="no target"),
    ],
)
def test_a_plan_that_cannot_be_trusted_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidRequest):
        plan(**change)


def test_outer_mounts_come_first() -> None:
    inner = {"source": "/a", "target": "/home/work/a/b", "read_only": True}
    outer = {"source": "/b", "target": "/home/work/a", "read_only": False}
    home = {"source": "/h", "target": "/home/work", "read_only": False}
    given: LaunchPlan = plan(mounts=[inner, outer], injection={"mounts": [home]})
    assert [m.source for m in given.all_mounts] == ["/h", "/b", "/a"]


@pytest.mark.parametrize("log", ["", "one line", "x" * 500, "한글\n" * 300, "\x1b[0m\n" * 300])
def test_a_log_is_cut_to_what_fits_into_a_body(log: str) -> None:
    cut = truncated(log, 400)
    assert log.endswith(cut)
    assert len(json.dumps(cut, ensure_ascii=False).encode()) <= 400
    assert len(cut) > 50 or cut == log


def test_the_tail_begins_with_a_whole_line() -> None:
    assert tail("first\nsecond\nthird\n", 10) == "third\n"
    assert tail("short", 10) == "short"
    assert tail("é" * 10, 5) == "éé"


def test_state_survives_json_and_later_fields() -> None:
    running = Running("docker", "s", "http://x", container_id="c", owner="ada")
    state = json.loads(json.dumps(running.to_state()))
    assert Running.from_state({**state, "of_a_later_version": 1}) == running


def test_the_hub_wants_a_number_of_an_end() -> None:
    assert Exit(0).as_poll == 0
    assert Exit(9).as_poll == 9
    assert Exit(None).as_poll == 1


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_people_typed_is_shown_and_never_run(language: str) -> None:
    name = "<img src=x onerror=alert(1)>"
    shown = [
        refusals.queued({"name": name}, PAGE, translator(language)),
        refusals.of_manager(errors.QuotaExceeded(f"{name} is too much"), translator(language)),
        refusals.of_engine(EngineError(name), PAGE, translator(language)),
    ]
    for refused in shown:
        assert "<img" not in refused.jupyterhub_html_message
        assert name in refused.jupyterhub_message
        assert refused.message_html == refused.jupyterhub_html_message


@pytest.mark.parametrize(
    ("error", "reason", "status"),
    [
        (errors.InvalidRequest("x"), "invalid-request", 400),
        (errors.QuotaExceeded("x"), "quota-exceeded", 403),
        (errors.Forbidden("x"), "forbidden", 403),
        (errors.NotFound("x"), "not-found", 404),
        (errors.AlreadyExists("x"), "already-exists", 409),
        (errors.InsufficientResources("x"), "insufficient-resources", 409),
        (errors.RateLimited("x"), "rate-limited", 429),
        (errors.Unavailable("x"), "unavailable", 503),
        (errors.StorageFull("x"), "storage-full", 507),
    ],
)
def test_refusals_of_the_manager(error: errors.BaiError, reason: str, status: int) -> None:
    refused = refusals.of_manager(error, ENGLISH)
    assert (refused.reason, refused.status_code) == (reason, status)


def test_unavailable_manager_is_not_reported_as_quota() -> None:
    text = refusals.of_manager(errors.Unavailable("x"), ENGLISH).jupyterhub_message
    assert text.startswith("The resource manager cannot be reached.")
    # The request may have arrived before the connection was lost.
    assert "othing was started" not in text


def test_unreachable_engine_does_not_fail_the_session() -> None:
    assert refusals.of_engine(EngineUnreachable("x"), PAGE, ENGLISH).status_code == 503
    assert refusals.of_engine(EngineError("x"), PAGE, ENGLISH).status_code == 500


@pytest.mark.parametrize(
    ("session", "percent", "words"),
    [
        ({"status": "PENDING", "queue_position": 2}, 5, "number 2 in the queue"),
        (
            {"status": "PENDING", "reasons": [{"check": "c", "passed": False, "message": "full"}]},
            5,
            "full",
        ),
        ({"status": "SCHEDULED"}, 20, "agent was chosen"),
        ({"status": "PREPARING"}, 25, "is preparing"),
        (
            {"status": "PREPARING", "progress": {"message": "pulling", "percent": 50}},
            45,
            "pulling (50 %)",
        ),
        ({"status": "PREPARING", "progress": {"percent": 900}}, 65, "%"),
        ({"status": "PREPARED"}, 70, "Starting"),
        ({"status": "RUNNING"}, 95, "answers"),
        ({"status": "CANCELLED"}, 10, "ended"),
    ],
)
def test_progress(session: dict[str, Any], percent: int, words: str) -> None:
    event = progress_event(session, ENGLISH)
    assert event["progress"] == percent
    assert words in event["message"]
