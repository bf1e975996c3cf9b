"""Launch plans, log truncation, saved state, refusals and progress events of the spawner."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bai_services.core import errors
from bai_services.core.sessions.launch_plan import LaunchPlan
from bai_services.core.sessions.logs import truncated
from bai_services.engines.base import EngineError, EngineUnreachable, Exit, Running, tail
from bai_services.i18n.catalogue import LANGUAGES, translator
from bai_spawner import refusals
from bai_spawner.progress import progress_event
from tests.spawner.plans import plan

ENGLISH = translator("en")
PAGE = "/services/bai/sessions/1"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"session_id": "../x"}, id="session id is a path"),
        pytest.param({"kernel_id": "x"}, id="kernel id is not a UUID"),
        pytest.param({"uid": "root"}, id="uid is not a number"),
        pytest.param(
            {"mounts": [{"source": "x", "target": "/home/work/x"}]}, id="source is relative"
        ),
        pytest.param({"mounts": [{"source": "/x", "target": "/home/../etc"}]}, id="target has .."),
        pytest.param({"mounts": [{"source": "/x"}]}, id="target is missing"),
    ],
)
def test_an_invalid_plan_is_rejected(change: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidRequest):
        plan(**change)


def test_mounts_are_sorted_from_outer_to_inner_paths() -> None:
    inner = {"source": "/a", "target": "/home/work/a/b", "read_only": True}
    outer = {"source": "/b", "target": "/home/work/a", "read_only": False}
    home = {"source": "/h", "target": "/home/work", "read_only": False}
    given: LaunchPlan = plan(mounts=[inner, outer], injection={"mounts": [home]})
    assert [m.source for m in given.all_mounts] == ["/h", "/b", "/a"]


@pytest.mark.parametrize("log", ["", "one line", "x" * 500, "한글\n" * 300, "\x1b[0m\n" * 300])
def test_log_is_truncated_to_the_maximum_body_size(log: str) -> None:
    cut = truncated(log, 400)
    assert log.endswith(cut)
    assert len(json.dumps(cut, ensure_ascii=False).encode()) <= 400
    assert len(cut) > 50 or cut == log


def test_tail_begins_with_a_complete_line_or_character() -> None:
    assert tail("first\nsecond\nthird\n", 10) == "third\n"
    assert tail("short", 10) == "short"
    assert tail("é" * 10, 5) == "éé"


def test_state_is_restored_from_json_and_ignores_unknown_fields() -> None:
    running = Running("docker", "s", "http://x", container_id="c", owner="ada")
    state = json.loads(json.dumps(running.to_state()))
    assert Running.from_state({**state, "of_a_later_version": 1}) == running


def test_exit_is_converted_to_a_poll_value() -> None:
    assert Exit(0).as_poll == 0
    assert Exit(9).as_poll == 9
    assert Exit(None).as_poll == 1


@pytest.mark.parametrize("language", LANGUAGES)
def test_user_input_is_escaped(language: str) -> None:
    name = "<img src=x onerror=alert(1)>"
    errors_with_input = [
        refusals.queued({"name": name}, PAGE, translator(language)),
        refusals.of_manager(errors.QuotaExceeded(f"{name} is too much"), translator(language)),
        refusals.of_engine(EngineError(name), PAGE, translator(language)),
    ]
    for refused in errors_with_input:
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
def test_errors_of_the_manager_have_reason_and_status(
    error: errors.BaiError, reason: str, status: int
) -> None:
    refused = refusals.of_manager(error, ENGLISH)
    assert (refused.reason, refused.status_code) == (reason, status)


def test_unavailable_manager_is_not_reported_as_exceeded_quota() -> None:
    text = refusals.of_manager(errors.Unavailable("x"), ENGLISH).jupyterhub_message
    assert text.startswith("The resource manager cannot be reached.")
    # The manager may have received the request before the connection was lost.
    assert "othing was started" not in text


def test_unreachable_engine_is_reported_as_unavailable() -> None:
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
        # The bar stays within the range of the step for any percentage that the agent reports.
        ({"status": "PREPARING", "progress": {"percent": 900}}, 65, "(900 %)"),
        ({"status": "PREPARED"}, 70, "Starting"),
        ({"status": "RUNNING"}, 95, "responds"),
        ({"status": "CANCELLED"}, 10, "ended"),
    ],
)
def test_progress_event_has_percentage_and_text(
    session: dict[str, Any], percent: int, words: str
) -> None:
    event = progress_event(session, ENGLISH)
    assert event["progress"] == percent
    assert words in event["message"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        pytest.param("no-agent", "자원 그룹 default에 에이전트가 없습니다", id="known code"),
        pytest.param("of-a-newer-manager", "in English", id="unknown code: English"),
    ],
)
def test_reason_in_a_progress_event_is_translated(code: str, words: str) -> None:
    coded = {"code": code, "values": {"group": "default"}, "parts": []}
    reason = {"check": "resources", "passed": False, "message": "in English", "coded": coded}
    event = progress_event({"status": "PENDING", "reasons": [reason]}, translator("ko"))
    assert event["message"].endswith(words)
