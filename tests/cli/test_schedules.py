"""`bai schedule`, `bai budget` and `bai admin budget`."""

from __future__ import annotations

import re

from bai_services.cli.units import with_currency
from tests.testbed.manager import Api

from .conftest import Bai


async def test_schedule_is_created_listed_changed_and_removed(bai: Bai, api: Api) -> None:
    done = await bai(
        "schedule", "create", "work", "--start", "mon-fri 08:00", "--stop", "mon-fri 19:00",
        "--time-zone", "Asia/Seoul", "--catch-up", "5", "-r", "cpu=1", "-r", "mem=1g", "--json",
        by="user",
    )  # fmt: skip
    made = done.document
    assert made["request"] == {"resources": {"cpu": "1", "mem": "1g"}}
    assert (made["start"], made["stop"], made["catch_up_minutes"]) == (
        "mon-fri 08:00",
        "mon-fri 19:00",
        5,
    )
    info = await bai("schedule", "info", "work", by="user")
    assert re.search(r"request +resources: 1 CPU, 1 GiB\n", info.stdout)
    listed = await bai("schedule", "ls", by="user")
    assert "work" in listed.stdout
    changed = await bai("schedule", "set", "work", "--stop", "none", "--json", by="user")
    assert changed.document["stop"] is None
    await bai("schedule", "pause", "work", by="user")
    resumed = await bai("schedule", "resume", "work", by="user")
    # The time zone is that of the schedule's rule.
    next_start = r"next start: (Mon|Tue|Wed|Thu|Fri) 20\d\d-\d\d-\d\d 08:00 \+0900"
    assert re.search(next_start, resumed.stdout + resumed.stderr)
    runs = await bai("schedule", "runs", "work", by="user")
    assert runs.code == 0
    wrong = await bai("schedule", "create", "odd-one", "--start", "whenever", by="user")
    assert wrong.code != 0
    assert "two or five parts" in wrong.stderr
    assert (await bai("schedule", "rm", "work", by="user")).code == 0
    assert (await bai("schedule", "info", "work", by="user")).code == 4


async def test_budget_is_set_by_an_administrator_and_shown_to_members(bai: Bai) -> None:
    none = await bai("budget", by="user")
    assert "none of your projects has a budget" in none.stderr
    made = await bai(
        "admin", "budget", "create", "default/default", "--amount", "100.25", "--mode",
        "block", "--json",
    )  # fmt: skip
    assert (made.document["amount"], made.document["mode"]) == (100.25, "block")
    wrong = await bai("admin", "budget", "update", "default/default", "--amount", "1.005")
    assert "is not a number with at most two decimal places" in wrong.stderr
    await bai("admin", "price", "set", "cpu=1", "--currency", "EUR")
    shown = await bai("budget", by="user")
    assert re.search(r"default +100\.25 EUR +0\.00 EUR +100\.25 EUR", shown.stdout)
    detail = await bai("admin", "budget", "show", "default/default")
    assert re.search(r"^spent_computed_until +20", detail.stdout, re.MULTILINE)
    listed = await bai("admin", "budget", "list")
    assert re.search(r"default +default +100\.25 EUR +0\.00 EUR +100\.25 EUR", listed.stdout)
    old = await bai(
        "admin", "budget", "update", "default/default", "--amount", "50", "--version", "7"
    )
    assert "another user has changed" in old.stderr
    assert (await bai("admin", "budget", "delete", "default/default")).code == 0


def test_excess_over_a_budget_is_not_a_negative_amount() -> None:
    def left(amount: float) -> str:
        shown: str = with_currency({"left": amount, "currency": "EUR"}, ["left"])["left"]
        return shown

    assert [left(0.22), left(-0.22), left(-0.004)] == ["0.22 EUR", "0.22 EUR over", "0.00 EUR"]
