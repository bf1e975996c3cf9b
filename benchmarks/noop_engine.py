"""An engine that starts no kernels, to measure or test Hub, manager, agent and spawner alone."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from bai_services.core.sessions.launch_plan import LaunchPlan
from bai_services.engines.base import Engine, Exit, Running

# Name of the environment variable with the URL that the engine returns for every session.
URL_VARIABLE = "BAI_BENCH_SERVER"


class NoopEngine(Engine):
    name = "process"

    # Ids of stopped sessions. All spawners of the Hub must see the same set.
    _ended: set[str] = set()

    def __init__(self, shared: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    async def address(self, plan: LaunchPlan) -> tuple[str, int]:
        host, _, port = os.environ[URL_VARIABLE].rpartition("://")[2].partition(":")
        return host, int(port)

    async def start(
        self, plan: LaunchPlan, environ: Mapping[str, str], command: Sequence[str]
    ) -> Running:
        return Running(
            engine=self.name,
            session_id=plan.session_id,
            url=os.environ[URL_VARIABLE],
            container_id=f"noop-{plan.kernel_id}",
            owner=plan.user,
        )

    async def find(self, kernel: Running) -> Running | None:
        return None

    async def poll(self, running: Running) -> Exit | None:
        return Exit(0) if running.session_id in self._ended else None

    async def read_log(self, running: Running, max_bytes: int) -> str:
        return ""

    async def stop(self, running: Running, now: bool = False) -> Exit:
        self._ended.add(running.session_id)
        return Exit(0)

    async def remove(self, running: Running) -> None:
        pass


@contextmanager
def serve_empty_responses() -> Iterator[str]:
    """Run an HTTP server that answers every request with 200; yield its URL for `URL_VARIABLE`."""
    loop = asyncio.new_event_loop()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def end() -> None:
        """Close the server and its open connections."""
        server.close()
        connections = asyncio.all_tasks() - {asyncio.current_task()}
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    server = loop.run_until_complete(asyncio.start_server(answer, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
