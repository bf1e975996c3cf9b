"""Prepare the session for a stop within a time limit, and report what was saved."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from bai_labext.manager_link import ManagerLink
from bai_labext.preparation.hook import HookResult, find_hook, run_hook
from bai_labext.preparation.pages import Pages
from bai_labext.preparation.variables import SavedKernel, Variables
from bai_services.core.errors import BaiError, Conflict, Forbidden, NotFound
from bai_services.core.sessions.suspensions import (
    MAX_REPORT_CHARACTERS,
    MAX_REPORT_ENTRIES,
    Purpose,
)

log = logging.getLogger(__name__)

# Folder in the home with the report and the saved variables.
FOLDER = ".bai"
REPORT = "stop-report.json"
VARIABLES = "variables"
MAX_REPORT_BYTES = 256 * 1024
# Duration of a long poll for notices, and the pause after an error.
POLL_SECONDS = 240.0
ERROR_PAUSE_SECONDS = 10.0
# An open page answers within this time, even in a background tab.
ANSWER_SECONDS = 4.0
# The preparation ends this time before the deadline, so that its report arrives in time.
MARGIN_SECONDS = 2.0
# If a session still runs at this time after the deadline, it will not be stopped: the preemption
# was dropped, or the suspension was cancelled.
CANCELLED_SECONDS = 30.0
# Variables are saved again at this time before the deadline of a preemption. The user can work
# until the deadline, at which the manager stops the session.
FINAL_SAVE_SECONDS = 8.0
# Fractions of the time limit, for the pages and for the hook.
PAGES_PART, HOOK_PART = 0.4, 0.6
DEFAULT_VARIABLES_MIB = 1024


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice of the manager; ``ends_at`` is a time of the event loop's clock."""

    purpose: str
    requested_by: str
    deadline: str
    ends_at: float
    keeps_variables: bool


class Preparation:
    """Waits for the manager's notice, then saves the session. There is one per server."""

    def __init__(
        self,
        link: ManagerLink,
        home: Path,
        environ: Mapping[str, str],
        settings: Mapping[str, Any],
        announce: Callable[[], None],
    ) -> None:
        """``announce`` notifies the open pages that the result of ``describe`` has changed."""
        self._link = link
        self._home = home
        self._environ = environ
        self._announce = announce
        mib = environ.get("BAI_VARIABLES_MIB", "")
        max_bytes = (int(mib) if mib.isdecimal() else DEFAULT_VARIABLES_MIB) * 2**20
        self._variables = Variables(home / FOLDER / VARIABLES, max_bytes, settings)
        self._notice: Notice | None = None
        self._is_done = False
        self.pages = Pages()
        self._returned: dict[str, Any] | None = None
        self._final_save: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Wait for notices and prepare the session, until the session is stopped."""
        self._returned = await asyncio.to_thread(_read_report, self._report_file)
        while self._link.session_id:
            try:
                notice = await self._link.stop_notice(POLL_SECONDS)
                if notice is not None:
                    await self.prepare(self._parse(notice))
            except (NotFound, Forbidden):
                # The manager has an older version, or the session has ended.
                await asyncio.sleep(POLL_SECONDS)
            except BaiError:
                await asyncio.sleep(ERROR_PAUSE_SECONDS)
            except Exception:
                log.exception("the preparation for a stop failed")
                await asyncio.sleep(ERROR_PAUSE_SECONDS)

    async def prepare(self, notice: Notice) -> None:
        """Save as much as possible until the deadline, and report it to the manager."""
        if self._final_save is not None:
            self._final_save.cancel()
        loop = asyncio.get_running_loop()
        total = max(notice.ends_at - loop.time(), 0.0)
        self._notice, self._is_done, self.pages = notice, False, Pages()
        self._announce()
        try:
            await self.pages.wait(ANSWER_SECONDS, total * PAGES_PART)
            hook_result = await self._run_hook(notice, total)
            kernels: list[SavedKernel] = []
            if notice.keeps_variables:
                left = notice.ends_at - loop.time()
                kernels = await self._variables.save(left)
            is_preparing = await self._send_report(notice, hook_result, kernels)
            if is_preparing and notice.purpose == Purpose.STOP:
                self._final_save = asyncio.create_task(
                    self._save_again(notice, hook_result, kernels), name="final-save"
                )
        finally:
            self._is_done = True
            self._announce()
            left = max(notice.ends_at - loop.time(), 0.0)
            loop.call_later(left + CANCELLED_SECONDS, self._forget, notice)

    async def _save_again(
        self, notice: Notice, hook_result: HookResult | None, kernels: list[SavedKernel]
    ) -> None:
        """Save the variables again shortly before the deadline.

        The open pages save their documents again without a request.
        """
        loop = asyncio.get_running_loop()
        pause = notice.ends_at - FINAL_SAVE_SECONDS - loop.time()
        if pause <= 0:
            return
        await asyncio.sleep(pause)
        try:
            # First check that the stop was not cancelled, because the save interrupts a busy
            # kernel.
            if not await self._send_report(notice, hook_result, kernels):
                self._forget(notice)
                return
            if notice.keeps_variables:
                kernels = await self._variables.save_again(notice.ends_at - loop.time(), kernels)
            await self._send_report(notice, hook_result, kernels)
        except BaiError as error:
            log.warning("the final save was not reported: %s", error)
        except Exception:
            log.exception("the final save failed")

    async def _send_report(
        self, notice: Notice, hook_result: HookResult | None, kernels: list[SavedKernel]
    ) -> bool:
        """Store what was saved, and report it; return False if no stop is planned any more."""
        report = self._report(hook_result, kernels)
        await asyncio.to_thread(self._write_report, notice, report, kernels)
        try:
            await self._link.report_preparation(report)
        except Conflict:
            # The deadline has passed, or the stop was cancelled.
            return False
        return True

    def _forget(self, notice: Notice) -> None:
        """Hide a notice, unless a newer one has replaced it."""
        if self._notice is notice:
            self._notice = None
            self._announce()

    def describe(self) -> dict[str, Any]:
        """Return the state for the page: the upcoming stop, and what was saved before the last
        stop.
        """
        notice = self._notice
        ahead = None
        if notice is not None:
            left = notice.ends_at + MARGIN_SECONDS - asyncio.get_running_loop().time()
            ahead = {
                "purpose": notice.purpose,
                "requested_by": notice.requested_by,
                "deadline": notice.deadline,
                "seconds_left": max(left, 0.0),
                "is_done": self._is_done,
            }
        return {"ahead": ahead, "returned": self._returned}

    async def dismiss_report(self) -> None:
        """Stop showing what was saved before the last stop; the saved variables remain."""
        self._returned = None
        await asyncio.to_thread(self._report_file.unlink, True)

    @property
    def _report_file(self) -> Path:
        return self._home / FOLDER / REPORT

    def _parse(self, notice: Mapping[str, Any]) -> Notice:
        left = max(float(notice["seconds_left"]) - MARGIN_SECONDS, 0.0)
        return Notice(
            purpose=str(notice["purpose"]),
            requested_by=str(notice["requested_by"]),
            deadline=str(notice["deadline"]),
            ends_at=asyncio.get_running_loop().time() + left,
            keeps_variables=bool(notice["keeps_variables"]),
        )

    async def _run_hook(self, notice: Notice, total: float) -> HookResult | None:
        hook = await asyncio.to_thread(find_hook, self._home, self._environ)
        if hook is None:
            return None
        left = notice.ends_at - asyncio.get_running_loop().time()
        environ = {
            **self._environ,
            "BAI_STOP_PURPOSE": notice.purpose,
            "BAI_STOP_DEADLINE": notice.deadline,
        }
        seconds = min(left, max(total * HOOK_PART, 0.1))
        result = await run_hook(hook, self._home, environ, seconds)
        code = "-" if result.exit_code is None else result.exit_code
        log.info("%s: exit code %s %s", hook, code, result.message)
        return result

    def _report(self, hook_result: HookResult | None, kernels: list[SavedKernel]) -> dict[str, Any]:
        result = hook_result or HookResult(exit_code=None)
        return {
            "saved_documents": _limited(self.pages.saved),
            "unsaved_documents": _limited(self.pages.unsaved),
            "saved_variables": _limited(f"{k.path}: {name}" for k in kernels for name in k.saved),
            "unsaved_variables": _limited(
                f"{k.path}: {name}" for k in kernels for name in k.skipped
            ),
            "pages": self.pages.count,
            "has_hook": hook_result is not None,
            "hook_exit_code": result.exit_code,
            "hook_message": result.message,
        }

    def _write_report(
        self, notice: Notice, report: Mapping[str, Any], kernels: list[SavedKernel]
    ) -> None:
        content = {
            **report,
            "purpose": notice.purpose,
            "saved_at": datetime.now(UTC).isoformat(),
            "kernels": [kernel.to_json() for kernel in kernels],
        }
        self._report_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = self._report_file.with_suffix(".tmp")
        temporary.write_text(json.dumps(content))
        os.replace(temporary, self._report_file)


def _limited(entries: Iterable[str]) -> list[str]:
    """Shorten entries to the limits of a report; the manager rejects a report that exceeds them."""
    return [entry[:MAX_REPORT_CHARACTERS] for entry in islice(entries, MAX_REPORT_ENTRIES)]


def _read_report(path: Path) -> dict[str, Any] | None:
    """Return the report of the last stop; None if it is missing or cannot be parsed."""
    try:
        if path.stat().st_size > MAX_REPORT_BYTES:
            return None
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
