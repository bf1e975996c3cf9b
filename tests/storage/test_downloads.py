"""Closing a descriptor that worker threads may still use after a disconnect or a timeout."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from bai_services.core.errors import Unavailable
from bai_services.storage.transfers import downloads
from bai_services.storage.transfers.downloads import ArchiveStream, Descriptor
from bai_services.storage.workers import Workers
from tests.testbed.wait import wait_until_async


@pytest.fixture
async def workers() -> AsyncIterator[Workers]:
    made = Workers("local", 1)
    made.start()
    yield made
    await made.stop()


def is_open(number: int) -> bool:
    return Path(f"/proc/self/fd/{number}").exists()


async def test_descriptor_stays_open_while_step_of_cancelled_call_uses_it(
    workers: Workers, tmp_path: Path
) -> None:
    number = os.open(tmp_path, os.O_RDONLY)
    descriptor = Descriptor(number, workers)
    began, may_end = threading.Event(), threading.Event()

    def step(given: int) -> None:
        began.set()
        may_end.wait(30)

    waiting = asyncio.create_task(workers.run(descriptor.use, step))
    await asyncio.to_thread(began.wait, 30)
    waiting.cancel()
    closing = asyncio.create_task(descriptor.close())
    await asyncio.gather(waiting, return_exceptions=True)
    assert is_open(number)
    may_end.set()
    await closing
    assert not is_open(number)


async def test_close_needs_no_free_worker(workers: Workers, tmp_path: Path) -> None:
    number = os.open(tmp_path, os.O_RDONLY)
    descriptor = Descriptor(number, workers)
    archive_root = os.open(tmp_path, os.O_RDONLY)
    archive = ArchiveStream(archive_root, (part for part in (b"x",)), workers)
    began, may_end = threading.Event(), threading.Event()

    def step(given: int) -> None:
        began.set()
        may_end.wait(30)

    waiting = asyncio.create_task(workers.run(descriptor.use, step, seconds=0.05))
    await asyncio.to_thread(began.wait, 30)
    with pytest.raises(Unavailable):
        await waiting
    await descriptor.close()
    await archive.close()
    assert is_open(number)
    await wait_until_async(lambda: not is_open(archive_root), 30, "the archive to be closed")
    may_end.set()
    await wait_until_async(lambda: not is_open(number), 30, "the file to be closed")


class LockTakenByStep:
    """A lock that stays held after ``release``, as if a queued step had acquired it at once."""

    def __init__(self) -> None:
        self._is_held = False

    def acquire(self, blocking: bool = True) -> bool:
        if not self._is_held:
            self._is_held = True
            return True
        assert not blocking, "the event loop would block until the step ends"
        return False

    def release(self) -> None:
        """Keep the lock acquired, as if the queued step had acquired it at once."""

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc_info: object) -> None:
        self.release()


async def test_close_does_not_wait_for_queued_step(
    workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "threading", SimpleNamespace(Lock=LockTakenByStep))
    number = os.open(tmp_path, os.O_RDONLY)
    await Descriptor(number, workers).close()
    assert not is_open(number)


async def test_queued_step_fails_after_close(workers: Workers, tmp_path: Path) -> None:
    descriptor = Descriptor(os.open(tmp_path, os.O_RDONLY), workers)
    used: list[int] = []
    may_end = threading.Event()
    busy = asyncio.create_task(workers.run(may_end.wait, 30))
    late = asyncio.create_task(workers.run(descriptor.use, used.append))
    await asyncio.sleep(0)  # both calls are queued now
    await descriptor.close()
    may_end.set()
    await busy
    with pytest.raises(OSError, match="has given up"):
        await late
    assert used == []
