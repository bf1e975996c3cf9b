"""Preparation for a stop: the hook, the answers of open pages, and variables of real kernels."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager

from bai_labext.preparation import variables
from bai_labext.preparation.hook import IMAGE_HOOK, find_hook, run_hook
from bai_labext.preparation.pages import Pages
from bai_labext.preparation.preparation import FINAL_SAVE_SECONDS, Notice, Preparation
from bai_labext.preparation.variables import Variables
from bai_services.core.errors import Conflict
from bai_services.core.sessions.suspensions import Purpose
from tests.testbed.wait import wait_until_async


def write_hook(home: Path, script: str) -> Path:
    hook = home / ".bai" / "on-preempt"
    hook.parent.mkdir()
    hook.write_text(f"#!/bin/sh\n{script}\n")
    hook.chmod(0o755)
    return hook


async def test_hook_runs_in_the_home_and_its_output_is_logged(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hook = write_hook(tmp_path, "pwd; echo $BAI_STOP_PURPOSE; exit 3")
    assert find_hook(tmp_path, {}) == hook
    environ = {"BAI_STOP_PURPOSE": "suspend", "PATH": "/usr/bin:/bin"}
    result = await run_hook(hook, tmp_path, environ, 20)
    assert (result.exit_code, result.message) == (3, "suspend")
    assert capfd.readouterr().out == f"{tmp_path}\nsuspend\n"


async def test_hook_is_stopped_at_its_limit(tmp_path: Path) -> None:
    hook = write_hook(tmp_path, "trap '' TERM; sleep 600 & wait; sleep 600")
    result = await run_hook(hook, tmp_path, {"PATH": "/usr/bin:/bin"}, 0.3)
    assert (result.exit_code, "time limit" in result.message) == (None, True)


async def test_hook_that_cannot_run_gives_the_reason(tmp_path: Path) -> None:
    hook = write_hook(tmp_path, "true")
    hook.chmod(0o644)
    assert "not executable" in (await run_hook(hook, tmp_path, {}, 1)).message
    hook.unlink()
    assert find_hook(tmp_path, {IMAGE_HOOK: "/does/not/exist"}) is None
    assert find_hook(tmp_path, {IMAGE_HOOK: "/bin/sh"}) == Path("/bin/sh")


async def test_pages_are_awaited_if_they_answer() -> None:
    pages = Pages()
    await pages.wait(0.01, 60)  # No page is open.
    pages.begin("one")
    waiting = asyncio.create_task(pages.wait(0.01, 60))
    pages.begin("two")
    pages.finish("one", ["a.ipynb"], [])
    await asyncio.sleep(0)
    assert not waiting.done()
    pages.finish("two", ["a.ipynb", 7], ["b (read-only)"])
    await waiting
    assert (list(pages.saved), list(pages.unsaved)) == (["a.ipynb", "7"], ["b (read-only)"])


class OneSession:
    """The session manager of a server with one notebook."""

    def __init__(self, kernel_id: str) -> None:
        self._kernel_id = kernel_id

    async def list_sessions(self) -> list[dict[str, Any]]:
        return [{"path": "work.ipynb", "kernel": {"id": self._kernel_id}}]


@pytest_asyncio.fixture(loop_scope="function")
async def kernel(tmp_path: Path) -> AsyncIterator[tuple[Any, str]]:
    manager = AsyncMappingKernelManager(root_dir=str(tmp_path))
    kernel_id = await manager.start_kernel()
    yield manager, kernel_id
    await manager.shutdown_all(now=True)


async def run_code(manager: Any, kernel_id: str, code: str) -> str:
    """Execute ``code`` and return what it printed."""
    client = manager.get_kernel(kernel_id).client()
    client.start_channels()
    await client.wait_for_ready(60)
    printed: list[str] = []

    def keep(message: dict[str, Any]) -> None:
        printed.append(message["content"].get("text", ""))

    await client.execute_interactive(code, timeout=60, output_hook=keep)
    client.stop_channels()
    return "".join(printed)


@pytest.mark.asyncio(loop_scope="function")
async def test_variables_are_saved_and_restored(kernel: tuple[Any, str], tmp_path: Path) -> None:
    manager, kernel_id = kernel
    await run_code(
        manager,
        kernel_id,
        "import json as j\nx, double = 21, lambda n: 2 * n\n"
        "handle, huge = (n for n in [1]), bytes(2 * 2**20)\n_private = 1",
    )
    settings = {"kernel_manager": manager, "session_manager": OneSession(kernel_id)}
    variables = Variables(tmp_path / "variables", 2**20, settings)
    (saved,) = await variables.save(30)
    assert (saved.path, set(saved.saved)) == ("work.ipynb", {"x", "double"})
    skipped = " ".join(saved.skipped)
    assert "handle (" in skipped and "huge (the size limit" in skipped
    other = await manager.start_kernel()
    printed = await run_code(manager, other, f"%run -i {tmp_path}/variables/0/restore.py")
    assert printed.startswith("restored: double, x\nnot restored: handle (")
    assert await run_code(manager, other, "print(double(x), j.dumps([]))") == "42 []\n"


@pytest.mark.asyncio(loop_scope="function")
async def test_second_save_replaces_the_first_unless_it_lacks_variables(
    kernel: tuple[Any, str], tmp_path: Path
) -> None:
    manager, kernel_id = kernel
    settings = {"kernel_manager": manager, "session_manager": OneSession(kernel_id)}
    variables = Variables(tmp_path / "variables", 2**20, settings)
    await run_code(manager, kernel_id, "x, gone = 1, 2")
    first = await variables.save(30)
    await run_code(manager, kernel_id, "x, y = 5, 6; del gone")
    second = await variables.save_again(30, first)
    assert [(one.folder, set(one.saved)) for one in second] == [("variables/0", {"x", "y"})]

    # The variable can no longer be saved, so the earlier dump remains.
    await run_code(manager, kernel_id, "x, y = 7, (n for n in [1])")
    assert await variables.save_again(30, second) == second
    assert not (tmp_path / "variables.new").exists()
    other = await manager.start_kernel()
    await run_code(manager, other, f"%run -i {tmp_path}/variables/0/restore.py")
    assert await run_code(manager, other, "print(x, y)") == "5 6\n"


class RecordingLink:
    """Accepts reports; after a cancelled stop, rejects them."""

    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []
        self.is_cancelled = False
        self.rejections = 0

    async def report_preparation(self, report: dict[str, Any]) -> None:
        if self.is_cancelled:
            self.rejections += 1
            raise Conflict("the session is not preparing for a stop")
        self.reports.append(report)


@pytest.mark.asyncio(loop_scope="function")
@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_variables_are_saved_again_shortly_before_a_stop_by_the_manager(
    kernel: tuple[Any, str], tmp_path: Path, is_cancelled: bool
) -> None:
    manager, kernel_id = kernel
    await run_code(manager, kernel_id, "first = 1")
    settings = {"kernel_manager": manager, "session_manager": OneSession(kernel_id)}
    link = RecordingLink()

    def answer() -> None:
        preparation.pages.finish("page", [], [])

    preparation = Preparation(cast(Any, link), tmp_path, {}, settings, answer)
    ends_at = asyncio.get_running_loop().time() + FINAL_SAVE_SECONDS + 2
    notice = Notice(Purpose.STOP, "scheduler", "", ends_at, keeps_variables=True)
    await preparation.prepare(notice)
    link.is_cancelled = is_cancelled
    await run_code(manager, kernel_id, "second = 2")
    # Before it saves, the final save repeats the first report, to check that the stop is planned.
    await wait_until_async(
        lambda: link.rejections == 1 or len(link.reports) == 3, 20, "the final save"
    )
    names = {"work.ipynb: first"} | (set() if is_cancelled else {"work.ipynb: second"})
    assert set(link.reports[-1]["saved_variables"]) == names
    # The page no longer shows a cancelled stop.
    await wait_until_async(
        lambda: (preparation.describe()["ahead"] is None) == is_cancelled, 20, "the state"
    )


@pytest.mark.asyncio(loop_scope="function")
async def test_variables_of_a_busy_kernel_are_saved_after_an_interrupt(
    kernel: tuple[Any, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The kernel is interrupted after 2 s, and has 30 s to save its variables, even if slow.
    monkeypatch.setattr(variables, "INTERRUPT_SECONDS", 30.0)
    manager, kernel_id = kernel
    await run_code(manager, kernel_id, "x = 1")
    client = manager.get_kernel(kernel_id).client()
    client.start_channels()
    client.execute("import time\ntime.sleep(600)")
    settings = {"kernel_manager": manager, "session_manager": OneSession(kernel_id)}
    (saved,) = await Variables(tmp_path / "variables", 2**20, settings).save(32)
    client.stop_channels()
    assert saved.saved == ("x",)
    assert json.dumps(saved.to_json())
