"""Throughput and memory of file transfers through the manager, compared with a plain copy.

The manager runs in a separate process. The client has minimal overhead, so that the manager
dominates the result.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port

from bai_services.api.accounts.sign_in import SignIn
from bai_services.api.app import make_app
from bai_services.api.base import BODY_CHUNK_BYTES
from bai_services.core.accounts import signature
from tests.testbed.manager import MovableClock, make_world, manager_on

MIB = 2**20
STREAMS = 8
SMALL_BYTES = 4096
PAGE = 50
ROUNDS = {1: 5, STREAMS: 3}


def main() -> int:
    """Print one JSON object on standard output and return the exit code."""
    spec = _parser().parse_args()
    if spec.serve:
        asyncio.run(_serve(Path(spec.serve)))
        return 0
    with (
        tempfile.TemporaryDirectory(prefix="bai-bench-", dir=spec.directory) as home,
        _served(Path(home)) as client,
    ):
        print(json.dumps(_measure(client, Path(home), spec), indent=2))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.storage", description=__doc__)
    parser.add_argument(
        "--directory", help="folder for the files; default: the system's temporary folder"
    )
    parser.add_argument(
        "--size-mib",
        type=int,
        default=2048,
        help="size of each stream in the measurement with 8 streams",
    )
    parser.add_argument("--single-mib", type=int, default=1024, help="size of the single stream")
    parser.add_argument(
        "--files", type=int, default=10_000, help="number of small files, of 4 KiB each"
    )
    parser.add_argument(
        "--entries",
        type=int,
        default=100_000,
        help="number of entries in the directory that is listed",
    )
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    return parser


async def _serve(home: Path) -> None:
    async with manager_on(
        f"sqlite+aiosqlite:///{home}/bai.sqlite", home, MovableClock()
    ) as manager:
        world = await make_world(manager, manager.clock)  # type: ignore[arg-type]
        await manager.folders.vfolders.start()
        folder = await manager.folders.vfolders.create(
            await world.caller("user"), {"name": "bench"}
        )
        server = HTTPServer(make_app(manager, SignIn(manager)), chunk_size=BODY_CHUNK_BYTES)
        listener, port = bind_unused_port()
        server.add_socket(listener)
        keys = world.keys["user"]
        facts = {
            "url": f"http://127.0.0.1:{port}{manager.settings.base_url}/api/v1",
            "keys": [keys.access_key, keys.secret_key],
            "folder": folder.id,
        }
        print(json.dumps(facts), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        server.stop()
        await server.close_all_connections()


class _Client:
    """HTTP client on plain sockets, which sends files with sendfile.

    ``process`` is the pid of the manager.
    """

    def __init__(self, facts: dict[str, Any], process: int) -> None:
        self.folder = facts["folder"]
        self.process = process
        self._url = urlsplit(facts["url"])
        self._keys = facts["keys"]

    def put(self, path: str, source: Path, kind: str = "content") -> None:
        """Send a file."""
        with source.open("rb") as file, self._connected() as wire:
            size = os.fstat(file.fileno()).st_size
            self._head(wire, "PUT", f"/{kind}?path={quote(path)}", f"Content-Length: {size}\r\n")
            sent = 0
            while sent < size:
                sent += os.sendfile(wire.fileno(), file.fileno(), sent, size - sent)
            self._answer(wire)

    def get(self, path: str, target: Path) -> None:
        """Receive a file and flush it to disk, as ``_copy`` does."""
        with target.open("wb") as file, self._connected() as wire:
            self._head(wire, "GET", f"/content?path={quote(path)}")
            head, left = self._answer(wire)
            file.write(head)
            buffer = memoryview(bytearray(MIB))
            left -= len(head)
            while left:
                got = wire.recv_into(buffer)
                if not got:
                    raise EOFError(f"the manager closed the connection {left} bytes too early")
                file.write(buffer[:got])
                left -= got
            file.flush()
            os.fsync(file.fileno())

    def page_seconds(self, path: str) -> float:
        """Request the first page of a directory listing; return the duration in seconds."""
        began = time.perf_counter()
        with self._connected() as wire:
            self._head(wire, "GET", f"/files?limit={PAGE}&path={quote(path)}")
            self._answer(wire)
        return time.perf_counter() - began

    def resident_bytes(self) -> int:
        for line in Path(f"/proc/{self.process}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("the benchmark's manager has exited")

    def _connected(self) -> socket.socket:
        # No timeout: it would make the socket non-blocking.
        return socket.create_connection((self._url.hostname, self._url.port))

    def _head(self, wire: socket.socket, method: str, rest: str, more: str = "") -> None:
        path = f"{self._url.path}/vfolders/{self.folder}{rest}"
        now = datetime.now(UTC).replace(microsecond=0)
        signed = signature.sign(
            self._keys[1],
            method=method,
            path=path,
            host=self._url.netloc,
            date=now,
            content_type="",
        )
        wire.sendall(
            f"{method} {path} HTTP/1.1\r\nHost: {self._url.netloc}\r\nDate: {now.isoformat()}\r\n"
            f"{signature.VERSION_HEADER}: {signature.VERSION}\r\n"
            f"Authorization: {signature.authorization(self._keys[0], signed)}\r\n"
            f"{more}Connection: close\r\n\r\n".encode()
        )

    @staticmethod
    def _answer(wire: socket.socket) -> tuple[bytes, int]:
        """Read the response's head.

        Return the first bytes of the body, which arrived with the head, and the body's length.
        """
        got = b""
        while b"\r\n\r\n" not in got:
            piece = wire.recv(65536)
            if not piece:
                raise RuntimeError(f"the manager closed the connection: {got[:200]!r}")
            got += piece
        head, _, body = got.partition(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n")[0]:
            raise RuntimeError(f"the manager rejected the request: {got[:500]!r}")
        lengths = [int(line.split(b":")[1]) for line in head.split(b"\r\n")
                   if line.lower().startswith(b"content-length:")]  # fmt: skip
        return body, lengths[0] if lengths else 0


@contextlib.contextmanager
def _served(home: Path) -> Iterator[_Client]:
    command = [sys.executable, "-m", "benchmarks.storage", "--serve", str(home)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as it:
        assert it.stdin is not None and it.stdout is not None
        try:
            yield _Client(json.loads(it.stdout.readline()), it.pid)
        finally:
            it.stdin.close()


def _measure(client: _Client, home: Path, spec: argparse.Namespace) -> dict[str, Any]:
    result: dict[str, Any] = {}
    _fill(home / "source", spec.single_mib)
    client.put("warm", home / "source")
    one = _compared(client, home, 1, spec.single_mib)
    _fill(home / "source", spec.size_mib)
    with _peak_memory(client) as most:
        before = client.resident_bytes()
        eight = _compared(client, home, STREAMS, spec.size_mib)
    result["upload_ratio"] = round(min(one["upload"], eight["upload"]), 3)
    result["download_ratio"] = round(min(one["download"], eight["download"]), 3)
    result["memory_growth_mib"] = round((most[0] - before) / MIB, 1)
    for name, figures in (("one_stream", one), ("eight_streams", eight)):
        result[name] = {key: round(value, 3) for key, value in figures.items()}
    (home / "source").unlink()
    result["small_files_per_second"] = round(_small_files(client, home, spec.files))
    result.update(_listing(client, home, spec.entries))
    return result


def _compared(client: _Client, home: Path, streams: int, size_mib: int) -> dict[str, float]:
    """Return the highest throughput of copy, upload and download over the rounds, in MiB/s.

    Also return the ratios of upload and download to copy.
    """
    source, total = home / "source", streams * size_mib
    steps: dict[str, Callable[[int], None]] = {
        "copy": lambda n: _copy(source, home / f"copy-{n}"),
        "up": lambda n: client.put(f"file-{n}", source),
        "down": lambda n: client.get(f"file-{n}", home / f"copy-{n}"),
    }
    best = dict.fromkeys(steps, 0.0)
    for _ in range(ROUNDS[streams]):
        _clear(client, home)
        for name, step in steps.items():
            _provide_memory(home, total)
            best[name] = max(best[name], total / _seconds(streams, step))
    for number in range(streams):
        (home / f"copy-{number}").unlink()
    return {
        "copy_mib_per_second": best["copy"],
        "upload_mib_per_second": best["up"],
        "download_mib_per_second": best["down"],
        "upload": best["up"] / best["copy"],
        "download": best["down"] / best["copy"],
    }


def _clear(client: _Client, home: Path) -> None:
    """Delete the target files, so that copy and upload start in the same state."""
    for path in (*home.glob("copy-*"), *_folder(client, home).glob("file-*")):
        path.unlink()


def _provide_memory(home: Path, size_mib: int) -> None:
    """Fill and free the page cache that the next step needs.

    A virtual machine returns free memory to its host. A step that must get the memory back takes
    up to three times as long, so the result would depend on the order of the steps.
    """
    block = bytes(MIB)
    with (home / "room").open("wb") as file:
        for _ in range(size_mib):
            file.write(block)
    (home / "room").unlink()


def _folder(client: _Client, home: Path) -> Path:
    (folder,) = home.glob(f"vfolders/user/*/{client.folder}")
    return folder


def _seconds(streams: int, work: Callable[[int], None]) -> float:
    began = time.perf_counter()
    with ThreadPoolExecutor(streams) as pool:
        list(pool.map(work, range(streams)))
    return time.perf_counter() - began


def _copy(source: Path, target: Path) -> None:
    """Copy like ``cp``, and flush the copy to disk, as the manager flushes an upload."""
    with source.open("rb") as a, target.open("wb") as b:
        shutil.copyfileobj(a, b, MIB)
        b.flush()
        os.fsync(b.fileno())


def _fill(path: Path, size_mib: int) -> None:
    block = os.urandom(MIB)
    with path.open("wb") as file:
        for _ in range(size_mib):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def _peak_memory(client: _Client) -> Iterator[list[int]]:
    """Yield a list with one element: the manager's peak resident memory in bytes.

    The element is updated every 0.05 s until the ``with`` block ends.
    """
    most, over = [client.resident_bytes()], threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            most[0] = max(most[0], client.resident_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield most
    finally:
        over.set()
        watcher.join()


def _small_files(client: _Client, home: Path, files: int) -> float:
    tree = home / "tree"
    for number in range(files):
        place = tree / f"d{number // 500:03}"
        if number % 500 == 0:
            place.mkdir(parents=True)
        (place / f"file-{number:06}").write_bytes(os.urandom(SMALL_BYTES))
    began = time.perf_counter()
    with tarfile.open(home / "tree.tar", "w") as archive:
        archive.add(tree, "tree")
    client.put("small", home / "tree.tar", "archive")
    return files / (time.perf_counter() - began)


def _listing(client: _Client, home: Path, entries: int) -> dict[str, float]:
    big = _folder(client, home) / "big"
    big.mkdir()
    for number in range(entries):
        os.close(os.open(big / f"entry-{number:06}", os.O_CREAT | os.O_WRONLY))
    # The first request finds nothing in the manager's cache, as when a user opens the directory.
    cold = client.page_seconds("big")
    rest = [client.page_seconds("big") for _ in range(9)]
    return {
        "first_page_ms": round(cold * 1000, 1),
        "first_page_again_ms": round(statistics.median(rest) * 1000, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
