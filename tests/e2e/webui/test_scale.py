"""Web UI: an installation with 5,000 sessions and 2,000 users; no page loads all rows."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from bai_services.core.listing import MAX_LIMIT
from bai_services.core.resources import CPU, slot_type
from bai_services.core.sessions.usage_history import COARSE, Sample
from bai_services.core.usage.model import (
    DAY,
    HOUR,
    WAITING,
    Holder,
    HourTotals,
    Prices,
    UsageRecord,
)
from bai_services.db.database import Database
from bai_services.db.usage.aggregates import UsageAggregateStore
from benchmarks.webui import add_sessions
from tests.e2e.sessions import checked, stop
from tests.hub import RunningHub

from .conftest import DEFAULTS
from .data_page import Data
from .entities_page import Entities
from .pages import Sessions

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page, Response

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

SESSIONS = 5_000
USERS = 2_000
# Copies `user2`; `add_users` fills in the columns and their values.
COPY_USER = """
WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count)
INSERT INTO users ({columns}) SELECT {values} FROM users, numbers WHERE username = 'user2'
"""
COPY_MEMBERSHIPS = """
INSERT INTO memberships (user_id, project_id)
SELECT users.id, projects.id FROM users, projects
WHERE users.username LIKE 'many-%' AND projects.name = 'default' AND projects.domain = users.domain
"""
# Number of users with a grant or a link: one more than a page of the API can contain.
SHARED = MAX_LIMIT + 1
GRANT = """
INSERT INTO vfolder_grants (vfolder_id, user_id, created_at, permission, granted_by)
SELECT id, :user, created_at, 'ro', 'user' FROM vfolders WHERE id = :folder
"""
LINK = "INSERT INTO resource_group_links (resource_group, kind, target) VALUES ('wide', 'user', ?)"


@contextmanager
def database_of(hub: RunningHub) -> Iterator[sqlite3.Connection]:
    """Yield the demo's database in one transaction."""
    with closing(sqlite3.connect(path_of_database(hub), timeout=60)) as database, database:
        yield database


def path_of_database(hub: RunningHub) -> Path:
    (path,) = (path for path in hub.home.rglob("*.sqlite") if path.name != "jupyterhub.sqlite")
    return path


def add_users(hub: RunningHub) -> None:
    """Add ``USERS`` copies of *user2*, which are members of the project *default*."""
    with database_of(hub) as database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(users)")]
        changed = {
            "id": "'many-' || n",
            "username": "'many-' || printf('%04d', n)",
            "email": "'many-' || n || '@example.com'",
            "main_access_key": "NULL",
        }
        values = ", ".join(changed.get(column, column) for column in columns)
        database.execute(
            COPY_USER.format(columns=", ".join(columns), values=values), {"count": USERS}
        )
        database.execute(COPY_MEMBERSHIPS)


async def add_usage(hub: RunningHub) -> None:
    """Store the usage of a batch session with two cores: busy for an hour, then idle for an hour.

    It ran yesterday, after it had waited from 9:00 to 10:00.
    """
    midnight = int(datetime.now(UTC).replace(hour=0, minute=0, second=0).timestamp()) - DAY
    queued, started, idle, ended = (midnight + hour * HOUR for hour in (9, 10, 11, 12))
    holder = Holder("many-1", "many", "default", "default", "usage:1", "batch", "")
    waiting = UsageRecord("used", "", WAITING, "", 1, queued, started, holder)
    cores = UsageRecord("used", "k", CPU, "", 2 * slot_type(CPU).unit, started, ended, holder)
    database = Database(f"sqlite+aiosqlite:///{path_of_database(hub)}")
    try:
        store = UsageAggregateStore(database)
        for hour in range(midnight, midnight + DAY, HOUR):
            totals = HourTotals(hour, Prices())
            totals.add(waiting)
            used = 2.0 if hour < idle else 0.0
            times = range(hour, hour + HOUR, COARSE.interval_seconds)
            samples = [
                Sample("k", datetime.fromtimestamp(at, UTC), {"cpu_cores": used}) for at in times
            ]
            totals.add(cores, samples)
            await store.write_hour(hour, totals.facts, totals.totals(), None)
    finally:
        await database.close()


@pytest.fixture(scope="module")
def large_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A separate installation, because the added rows would disturb other tests."""
    hub = RunningHub(tmp_path_factory.mktemp("large-hub"))
    try:
        hub.start()
        with hub.rest("user2") as rest:
            body = {"name": "to-copy", "project": "default", "type": "batch"}
            tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
            body |= {"startup_command": "true", "starts_at": tomorrow}
            session = checked(rest.post("/sessions", json=body), 201)
            stop(rest, session["id"])
        add_sessions(hub, session["id"], SESSIONS)
        add_users(hub)
        asyncio.run(add_usage(hub))
        yield hub
    finally:
        hub.stop()


class Loaded:
    """Records the largest number of rows in a response, and the ids of the rows of each path."""

    def __init__(self, page: Page) -> None:
        self.largest = 0
        self.ids: dict[str, set[str]] = defaultdict(set)
        page.on("response", self._count)

    async def _count(self, response: Response) -> None:
        from playwright.async_api import Error

        if "/api/v1/" in response.url and "json" in response.headers.get("content-type", ""):
            try:
                content: Any = await response.json()
            except Error:
                return  # the browser has left the page
            items = content.get("items", []) if isinstance(content, dict) else []
            self.largest = max(self.largest, len(items))
            ids = self.ids[urlsplit(response.url).path]
            ids.update(item["id"] for item in items if isinstance(item, dict) and "id" in item)


async def test_lists_are_bounded_and_their_rows_can_be_found(
    large_hub: RunningHub, browser: Browser
) -> None:
    context = await browser.new_context(**DEFAULTS)
    page = await context.new_page()
    loaded = Loaded(page)
    ui = Sessions(page, large_hub)
    await ui.sign_in("admin", "/sessions")

    # Totals above 1,000 are shown as "1000+".
    await page.get_by_role("tab", name="All (1000+)").wait_for()
    await page.get_by_role("tab", name="Ended (1000+)").wait_for()
    await ui.find("copy-4321")
    await ui.row("copy-4321").wait_for()
    await page.get_by_role("tab", name="All (1)").wait_for()
    await ui.open("/sessions?sort=name&page=50&size=50")
    await page.locator(".ant-table-row").first.wait_for()
    assert await page.locator(".ant-table-row").count() == 50
    await ui.open("/settings")
    await page.get_by_role("heading").first.wait_for()
    await ui.page.keyboard.press("Control+k")
    palette = page.get_by_role("combobox", name="Page, session, folder or endpoint")
    await palette.fill("copy-4999")
    await page.locator(".ant-select-item-option", has_text="copy-4999").first.click()
    await ui.drawer.get_by_text("copy-4999", exact=True).first.wait_for()

    users = Entities(page, large_hub)
    await users.open("/users")
    await page.locator(".ant-table-row").first.wait_for()
    await page.locator(".ant-pagination-next").click()
    await page.wait_for_url("**page=2**")
    await users.open('/users?filters={"username__contains":"many-1987"}')
    await users.row("many-1987").wait_for()

    await users.open('/projects?filters={"domain":"default","name__contains":"default"}')
    await users.row("default").get_by_role("button", name="default").click()
    await users.drawer.get_by_text("1–20 of 1000+").wait_for()
    await users.drawer.get_by_label("Find a member").fill("many-1999")
    await users.drawer.get_by_label("Find a member").press("Enter")
    await users.drawer.get_by_role("button", name="Remove many-1999").wait_for()

    for path in ("/start", "/dashboard", "/scheduler", "/agents"):
        await ui.open(path)
        await page.wait_for_load_state("networkidle")
        await page.locator("#content .ant-skeleton-active").first.wait_for(state="detached")
        assert await page.locator("#content *").count() < 5_000, path
    assert 0 < loaded.largest <= MAX_LIMIT
    # No page has loaded a complete list in several requests.
    assert max(map(len, loaded.ids.values())) < USERS / 2


async def test_long_lists_in_dialogs_and_drawers_are_complete(
    large_hub: RunningHub, browser: Browser
) -> None:
    with large_hub.rest("user") as rest:
        folder = checked(rest.post("/vfolders", json={"name": "popular"}), 201)["id"]
    with large_hub.rest("admin") as rest:
        checked(rest.post("/resource-groups", json={"name": "wide", "is_public": False}), 201)
    users = [f"many-{number}" for number in range(1, SHARED + 1)]
    with database_of(large_hub) as database:
        database.executemany(GRANT, [{"user": user, "folder": folder} for user in users])
        database.executemany(LINK, [(user,) for user in users])
    last = f"many-{SHARED:04}"

    context = await browser.new_context(**DEFAULTS)
    data = Data(await context.new_page(), large_hub)
    await data.sign_in("user", "/data")
    await data.choose("popular", "Share")
    await data.dialog.get_by_text("many-0001").wait_for()
    await data.dialog.get_by_title("26", exact=True).click()
    stop = data.dialog.get_by_role("row").filter(has_text=last).get_by_role("button")
    await stop.click()
    # The last page is empty now, so the page before it appears.
    await data.dialog.get_by_text(f"many-{SHARED - 1:04}").wait_for()
    await context.close()

    context = await browser.new_context(**DEFAULTS)
    groups = Entities(await context.new_page(), large_hub)
    await groups.sign_in("admin", "/resource-groups")
    await groups.show("wide")
    await groups.drawer.get_by_title("26", exact=True).click()
    # Links are sorted by id.
    last = f"many-{int(max(users).removeprefix('many-')):04}"
    await groups.drawer.get_by_role("button", name=f"Remove {last}").click()
    await groups.drawer.get_by_text(f"481–{SHARED - 1} of {SHARED - 1}").wait_for()
    await context.close()


async def test_statistics_show_usage_wait_and_utilization(
    large_hub: RunningHub, browser: Browser
) -> None:
    context = await browser.new_context(**DEFAULTS, timezone_id="UTC")
    page = await context.new_page()
    ui = Entities(page, large_hub)
    await ui.sign_in("admin", "/statistics?slot=cpu&by=user")
    # Two cores for two hours; the second hour was idle.
    for label in (
        "Usage over time: 4 h allocated in total",
        "Utilization by weekday and hour: mean 50 %",
        "Sessions in the queue by hour: maximum at 9:00",
    ):
        chart = page.get_by_role("img", name=label)
        await chart.locator("svg").first.wait_for()
    row = page.get_by_role("region", name="Largest usage").get_by_role("row")
    row = row.filter(has_text="many-0001")
    assert await row.get_by_role("cell").all_inner_texts() == ["many-0001", "4 h", "50 %", "2 h"]
    await page.get_by_role("combobox", name="Group by").click()
    await page.get_by_title("Image", exact=True).click()
    await page.get_by_role("cell", name="usage:1").wait_for()
    await context.close()
