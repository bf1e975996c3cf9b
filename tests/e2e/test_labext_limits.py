"""Time limits and idle timeouts in the session panel, in a browser."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.e2e import lab
from tests.e2e.lab import sign_in
from tests.e2e.panel import app_row, load, open_panel, panel_of, take_screenshot
from tests.e2e.sessions import checked, start, stop, wait_for
from tests.hub import RunningHub
from tests.testbed.jupyter import JupyterServer
from tests.testbed.wait import wait_until

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Route

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


def with_imminent_idle_timeout() -> Callable[[Route], Awaitable[None]]:
    """Return a route handler that changes responses: idle for 50 min, idle stop in 10 min.

    The time of the idle stop is the same in all responses: for each new time, the panel would show
    another warning.
    """
    now = datetime.now(UTC)
    times = {
        "idle_since": (now - timedelta(minutes=50)).isoformat(),
        "idle_ends_at": (now + timedelta(minutes=10)).isoformat(),
    }

    async def change_response(route: Route) -> None:
        answer = await route.fetch()
        content = await answer.json()
        if "session" in content:
            content["session"] |= times
        await route.fulfill(response=answer, json=content)

    return change_response


async def keep_alive_on_the_session_page(
    profile: BrowserContext, hub: RunningHub, session: dict[str, Any]
) -> None:
    """Press "Keep alive" on the session's page and assert that this counts as activity."""
    rest = hub.rest("user")
    before = idle_since(rest, session)
    page = await profile.new_page()
    try:
        await sign_in(page, hub, "user")
        await page.goto(hub.url + session["page"])
        await page.get_by_text("if idle").first.wait_for(timeout=lab.TIMEOUT_MS)
        path = f"/sessions/{session['id']}/activity"
        async with page.expect_response(lambda answer: answer.url.endswith(path)) as answered:
            await page.get_by_role("dialog").get_by_role("button", name="Keep alive").click()
        assert (await answered.value).ok
    finally:
        await page.close()
    assert idle_since(rest, session) > before


def idle_since(rest: httpx.Client, session: dict[str, Any]) -> datetime:
    row = checked(rest.get(f"/sessions/{session['id']}"), 200)
    return datetime.fromisoformat(row["idle_since"])


def has_warning(rest: httpx.Client, session: dict[str, Any]) -> bool:
    checks = checked(rest.get(f"/sessions/{session['id']}"), 200)["idle_checks"]
    return any(check["warning_seconds"] is not None for check in checks)


def report_activity(hub: RunningHub, rest: httpx.Client, session: dict[str, Any]) -> None:
    token = rest.headers["Authorization"].partition(" ")[2]
    server = JupyterServer(hub.url + session["url"], token)
    assert server.request("POST", "bai/api/session/activity").status_code == 200


def wait_for_idle_timeout(hub: RunningHub, session: dict[str, Any]) -> None:
    """Set an idle timeout of 3 s and wait until it stops the session.

    The session is stopped although its page is open in a browser.
    """
    rest, admin = hub.rest("user"), hub.rest("admin")
    limit = {"idle_timeout_seconds": 3}
    checked(admin.patch("/keypair-policies/default", json=limit), 200)
    # Report activity: the manager's response sets the time of the session's next report, which
    # depends on the timeout.
    report_activity(hub, rest, session)
    ended = wait_for(rest, session["id"], "TERMINATED")
    assert ended["status_info"].startswith("idle timeout: at most 3s without use"), ended
    steps = checked(rest.get(f"/sessions/{session['id']}/history"), 200)["items"]
    assert [step["reason"] for step in steps if step["to_status"] == "TERMINATING"] == [
        ended["status_info"]
    ]


async def test_a_warning_of_an_idle_checker_has_its_rule_and_a_keep_alive(
    profile: BrowserContext, hub: RunningHub, tmp_path: Path
) -> None:
    rest, admin = hub.rest("user"), hub.rest("admin")
    session = start(rest, "panel-checker")
    checker = {"name": "panel-checker", "type": "network", "max_seconds": 900}
    limits = {"warnings_seconds": [890], "allows_exclusion": True}
    checked(admin.post("/idle-checkers", json={**checker, **limits}), 201)
    try:
        binding = {"checker": "panel-checker", "scope": "user", "scope_key": "user"}
        checked(admin.post("/idle-checker-bindings", json=binding), 201)
        report_activity(hub, rest, session)
        wait_until(lambda: has_warning(rest, session), 120, "the warning of the checker")
        async with panel_of(profile, hub, session) as page:
            rule = "at most 15min without use, the limit of idle checker panel-checker"
            # There is one notification. It has no countdown, because the countdown would not be
            # updated. JupyterLab cuts off texts of more than 140 characters.
            kept = page.get_by_role("button", name="Keep alive (left: 3)")
            toast = (
                page.locator(".Toastify__toast")
                .filter(has_text=re.compile(rf"stops at \d+:\d\d:\d\d\s.*{rule[:25]}"))
                .filter(has=page.get_by_role("button", name="Exclude"))
                .filter(has=kept)
            )
            await toast.wait_for(timeout=lab.TIMEOUT_MS)
            panel = page.locator("#bai-session-panel")
            await panel.get_by_role("paragraph").filter(has_text=rule).wait_for()
            await take_screenshot(page, "checker-warning", tmp_path)
            await toast.locator(kept).click()
            await toast.wait_for(state="hidden")
            (check,) = checked(rest.get(f"/sessions/{session['id']}"), 200)["idle_checks"]
            assert check["keep_alives_left"] == 2
    finally:
        admin.delete("/idle-checkers/panel-checker")
        stop(rest, session["id"])


async def test_the_panel_warns_before_time_limits_extends_the_session_and_shows_the_end(
    profile: BrowserContext, hub: RunningHub, tmp_path: Path
) -> None:
    rest, admin = hub.rest("user"), hub.rest("admin")
    session = start(rest, "panel-ends")
    policy = {
        "max_session_lifetime_seconds": 1500,
        "max_lifetime_extension_seconds": 5400,
        "idle_timeout_seconds": 3600,
    }
    checked(admin.patch("/keypair-policies/default", json=policy), 200)
    # A new idle timeout has no end before the session has reported its activity.
    report_activity(hub, rest, session)
    try:
        async with panel_of(profile, hub, session) as page:
            panel = page.locator("#bai-session-panel")
            await panel.get_by_text("This session will be stopped in").wait_for()
            await (
                page.locator(".Toastify").get_by_text("This session will be stopped at").wait_for()
            )
            await take_screenshot(page, "stops-soon", tmp_path)
            await panel.get_by_role("button", name="Keep it alive").click()
            await panel.get_by_text("This session will be stopped in").wait_for(state="hidden")
            kept = checked(rest.get(f"/sessions/{session['id']}"), 200)["lifetime"]
            assert kept["added_seconds"] == 3600 and kept["addable_seconds"] == 1800
            await panel.get_by_text("Ends in", exact=True).wait_for()
            await panel.get_by_text("If unused, ends in").wait_for()
            checked(admin.patch(f"/agents/{session['agent']}", json={"schedulable": False}), 200)
            await page.route("**/bai/api/poll?**", with_imminent_idle_timeout())
            await load(page, hub, session)
            await open_panel(page)
            await panel.get_by_text("accepts no new sessions").wait_for(timeout=lab.TIMEOUT_MS)
            checked(admin.patch(f"/agents/{session['agent']}", json={"schedulable": True}), 200)
            unused = "This session is idle"
            await panel.get_by_text(unused).wait_for()
            await page.locator(".Toastify").get_by_text(unused).wait_for()
            await take_screenshot(page, "stops-unused", tmp_path)
            await page.unroute_all(behavior="wait")
            await panel.get_by_role("button", name="I am still here").click()
            await panel.get_by_text(unused).wait_for(state="hidden")
            await page.locator(".Toastify").get_by_text(unused).wait_for(state="hidden")
            await keep_alive_on_the_session_page(profile, hub, session)
            wait_for_idle_timeout(hub, session)
            # The panel shows that the session has ended.
            await panel.get_by_text("This session has ended:").wait_for(timeout=lab.TIMEOUT_MS)
            # After the stop, the warning is no longer shown.
            await page.locator(".Toastify").get_by_text(unused).wait_for(state="hidden")
            # The panel no longer offers apps.
            await app_row(page, "TensorBoard").wait_for(state="hidden")
            await take_screenshot(page, "ended", tmp_path)
    finally:
        unlimited = dict.fromkeys(policy, 0)
        checked(admin.patch("/keypair-policies/default", json=unlimited), 200)
        checked(admin.patch(f"/agents/{session['agent']}", json={"schedulable": True}), 200)
