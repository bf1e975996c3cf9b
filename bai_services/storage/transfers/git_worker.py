"""Fetch the files of one commit of a git repository, in a separate process with resource limits.

    python -m bai_services.storage.transfers.git_worker

Reads the job as a line of JSON from standard input, and writes a tar archive of the files. Writes
the received bytes as lines ``{"bytes": …}`` to standard output, and then the result or
``{"error": …}``. The access token reaches git in an environment variable, so it is in no argument,
no URL and no file.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bai_services.core.folders.entries import FetchedFiles
from bai_services.system.confinement import die_with_parent, limit_resources

MEMORY_BYTES = 2 * 2**30
CPU_SECONDS = 1800
OPEN_FILES = 256
NICENESS = 5
MAX_FILES = 100_000
# Maximum number of files, directories, links and submodules; a small repository can list billions
# of them.
MAX_ENTRIES = 200_000
MAX_PATH_BYTES = 4096
# git 2.37 added http.curloptResolve; earlier versions would resolve the host name again.
MIN_VERSION = (2, 37)
REPORT_SECONDS = 0.5
CHUNK_BYTES = 2**20
_LFS = b"version https://git-lfs.github.com/spec/v1\n"
_MAX_LFS_POINTER = 1024
_LINK, _SUBMODULE, _EXECUTABLE, _TREE = "120000", "160000", "100755", "040000"
_VERSION = re.compile(r"git version (\d+)\.(\d+)")
_GIT = ("git", "--no-pager", "--no-replace-objects")


@dataclass(frozen=True, slots=True)
class Job:
    """A commit to fetch. ``directory`` (created by the worker) and ``archive`` are absolute paths.

    ``revision``: branch, tag or commit, "" for the default branch. ``addresses``: the only
    addresses of the host that git may use, as ``HOST:PORT:ADDRESS,…``; "" if the URL contains one.
    ``ca_file``: certificates of trusted authorities; "": the system's certificates.
    """

    url: str
    revision: str
    token: str
    addresses: str
    ca_file: str
    directory: str
    archive: str
    max_bytes: int


class FetchError(Exception):
    """A repository that cannot be fetched; the message is for users."""


@dataclass(frozen=True, slots=True)
class _Blob:
    path: str
    mode: str
    object_id: str
    size: int


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    job = Job(**json.loads(sys.stdin.buffer.readline()))
    limit_resources(
        {
            resource.RLIMIT_AS: MEMORY_BYTES,
            resource.RLIMIT_CPU: CPU_SECONDS,
            resource.RLIMIT_NOFILE: OPEN_FILES,
            # Limit of one file. The largest file is the archive, which also contains headers.
            resource.RLIMIT_FSIZE: 2 * job.max_bytes + 64 * 2**20,
        }
    )
    die_with_parent()
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    try:
        result: dict[str, Any] = asdict(_Repository(job).fetch())
    except (FetchError, MemoryError) as error:
        result = {"error": str(error) or "the repository needs too much memory"}
    except OSError as error:
        result = {"error": f"the files cannot be written: {os.strerror(error.errno or 0)}"}
    _write(result)


class _Repository:
    """A bare repository with one commit."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._directory = Path(job.directory)
        self._environ = _environ(job)

    def fetch(self) -> FetchedFiles:
        """Fetch the commit and write the archive.

        Raises
        ------
        FetchError
            If the repository cannot be read, or exceeds a limit.
        """
        self._check_version()
        self._directory.mkdir(mode=0o700)
        self._run("init", "--quiet", "--bare", "--template=", ".")
        self._receive()
        commit = self._run("rev-parse", "--verify", "FETCH_HEAD^{commit}").decode().strip()
        blobs, skipped = self._files(commit)
        skipped["lfs"] = self._archive(blobs)
        total = sum(blob.size for blob in blobs)
        return FetchedFiles(commit, len(blobs), total, skipped)

    def _check_version(self) -> None:
        found = _VERSION.match(self._run("version", cwd="/").decode())
        if found is None or (int(found[1]), int(found[2])) < MIN_VERSION:
            needed = ".".join(map(str, MIN_VERSION))
            raise FetchError(f"this site needs git {needed} or later to fetch repositories")

    def _receive(self) -> None:
        """Fetch the objects of one commit, without history, tags and submodules."""
        arguments = (
            *("fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules"),
            *("--no-write-commit-graph", "--end-of-options"),
            *(self._job.url, self._job.revision or "HEAD"),
        )
        errors = self._directory / "errors"
        with errors.open("wb") as log, self._started(*arguments, stderr=log) as process:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = process.wait(REPORT_SECONDS)
                    break
                size = _size_of(self._directory / "objects")
                if size > self._job.max_bytes:
                    process.kill()
                    raise FetchError(f"the repository has more than {self._job.max_bytes} bytes")
                _write({"bytes": size})
        if code:
            raise FetchError(self._reason(code, errors))

    def _files(self, commit: str) -> tuple[list[_Blob], dict[str, int]]:
        """Return the files of a commit, and the numbers of entries that are not files."""
        blobs: list[_Blob] = []
        skipped = {"links": 0, "submodules": 0}
        total = 0
        for number, entry in enumerate(self._entries(commit), 1):
            if number > MAX_ENTRIES:
                raise FetchError(f"the repository has more than {MAX_ENTRIES} entries")
            head, _, name = entry.partition(b"\t")
            mode, _, object_id, size = head.decode("ascii").split()
            if mode == _TREE:
                continue
            if mode in (_LINK, _SUBMODULE):
                skipped["links" if mode == _LINK else "submodules"] += 1
                continue
            blob = _Blob(_checked_path(name), mode, object_id, int(size))
            blobs.append(blob)
            total += blob.size
            if len(blobs) > MAX_FILES:
                raise FetchError(f"the repository has more than {MAX_FILES} files")
            if total > self._job.max_bytes:
                raise FetchError(
                    f"the files of the repository have more than {self._job.max_bytes} bytes"
                )
        return blobs, skipped

    def _entries(self, commit: str) -> Iterator[bytes]:
        """Yield the entries of a tree as git lists them, because a hostile tree can be endless."""
        rest = b""
        with self._started(
            "ls-tree", "-r", "-t", "-z", "-l", commit, stdout=subprocess.PIPE
        ) as listing:
            assert listing.stdout is not None
            try:
                while chunk := listing.stdout.read(CHUNK_BYTES):
                    *entries, rest = (rest + chunk).split(b"\0")
                    yield from entries
                if listing.wait():
                    raise FetchError("the files of the repository cannot be listed")
            finally:
                listing.kill()

    def _archive(self, blobs: list[_Blob]) -> int:
        """Write the files to a tar archive; return how many are pointers of Git LFS."""
        pointers = 0
        reported = time.monotonic()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with (
            open(self._job.archive, "wb") as target,
            tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive,
            self._started("cat-file", "--batch", **pipes) as process,
        ):
            assert process.stdin is not None and process.stdout is not None
            for blob in blobs:
                process.stdin.write(blob.object_id.encode() + b"\n")
                process.stdin.flush()
                head = process.stdout.readline().split()
                if head != [blob.object_id.encode(), b"blob", str(blob.size).encode()]:
                    raise FetchError(f"the file {blob.path[:100]!r} cannot be read")
                content: Any = process.stdout
                if blob.size <= _MAX_LFS_POINTER:
                    small = process.stdout.read(blob.size)
                    content = io.BytesIO(small)
                    pointers += small.startswith(_LFS)
                archive.addfile(_member(blob), content)
                process.stdout.read(1)  # a newline after the content
                if time.monotonic() - reported >= REPORT_SECONDS:
                    reported = time.monotonic()
                    _write({"bytes": target.tell()})
            process.stdin.close()
        return pointers

    def _run(self, *arguments: str, cwd: str | None = None) -> bytes:
        done = subprocess.run(
            (*_GIT, *arguments),
            cwd=cwd or self._directory,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            raise FetchError(f"git {arguments[0]} has failed")
        return done.stdout

    def _started(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        given = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **options}
        return subprocess.Popen(
            (*_GIT, *arguments),
            cwd=self._directory,
            env=self._environ,
            preexec_fn=die_with_parent,  # safe, because this process has one thread
            **given,
        )

    def _reason(self, code: int, errors: Path) -> str:
        if code == -signal.SIGXCPU:
            return "the repository takes too long to fetch"
        with errors.open("rb") as file:
            text = file.read(64 * 1024).decode(errors="replace")
        return reason_of(text)


def reason_of(text: str) -> str:
    """Return a message for users about a failed fetch, from the messages of git."""
    lowered = text.lower()
    if "could not read username" in lowered or "authentication failed" in lowered:
        return "there is no such repository, or it needs a token with access to it"
    if "couldn't find remote ref" in lowered or "not our ref" in lowered:
        return "the repository has no such branch, tag or commit"
    if "returned error: 404" in lowered or "not found" in lowered:
        return "there is no such repository"
    if re.search(r"returned error: 30\d|redirect", lowered):
        return "the repository has moved; give its current address"
    if "certificate" in lowered:
        return "the certificate of the server is not valid"
    if "returned error: 403" in lowered:
        return "access is refused (status 403)"
    lines = [line for line in text.splitlines() if line.startswith("fatal: ")]
    shown = "".join(c if c.isprintable() else "?" for c in lines[-1])[7:207] if lines else ""
    return f"the repository cannot be fetched: {shown or 'git has failed'}"


def _environ(job: Job) -> dict[str, str]:
    """Return the environment of git: no configuration, credentials, hooks, prompts or proxies."""
    options = {
        "credential.helper": "",
        "core.hooksPath": "/dev/null",
        "core.attributesFile": "/dev/null",
        "http.proxy": "",
        # A redirect would lead to an unchecked URL.
        "http.followRedirects": "false",
        # Abort slower transfers, because a server must not occupy an import for hours.
        "http.lowSpeedLimit": "32768",
        "http.lowSpeedTime": "300",
        "fetch.unpackLimit": "1",
        "gc.auto": "0",
        "maintenance.auto": "false",
        "pack.threads": "1",
        "transfer.bundleURI": "false",
        # Limits of the memory for large files and deltas.
        "core.bigFileThreshold": "16m",
        "core.packedGitWindowSize": "16m",
        "core.packedGitLimit": "128m",
        "core.deltaBaseCacheLimit": "32m",
    }
    if job.addresses:
        options["http.curloptResolve"] = job.addresses
    if job.ca_file:
        options["http.sslCAInfo"] = job.ca_file
    if job.token:
        # GitHub, GitLab, Gitea and Bitbucket accept any user name with a token.
        given = base64.b64encode(f"oauth2:{job.token}".encode()).decode()
        options["http.extraHeader"] = f"Authorization: Basic {given}"
    environ = {
        "PATH": os.environ.get("PATH", os.defpath),
        "LC_ALL": "C.UTF-8",
        "HOME": job.directory,
        "GIT_DIR": job.directory,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/false",
        "GIT_ALLOW_PROTOCOL": "https",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_CONFIG_COUNT": str(len(options)),
    }
    for number, (key, value) in enumerate(options.items()):
        environ |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return environ


def _checked_path(name: bytes) -> str:
    """Return a checked path of a commit; reject ``.git``, which could run programs."""
    try:
        path = name.decode()
    except UnicodeDecodeError:
        raise FetchError(f"the name of a file is not UTF-8: {name[:100]!r}") from None
    parts = path.split("/")
    if len(name) > MAX_PATH_BYTES or any(
        part in ("", ".", "..") or part.lower() == ".git" for part in parts
    ):
        raise FetchError(f"the name of a file is not valid: {path[:100]!r}")
    return path


def _member(blob: _Blob) -> tarfile.TarInfo:
    member = tarfile.TarInfo(blob.path)
    member.size = blob.size
    member.mode = 0o755 if blob.mode == _EXECUTABLE else 0o644
    member.mtime = int(time.time())
    return member


def _size_of(directory: Path) -> int:
    size = 0
    for above, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                size += os.stat(os.path.join(above, name)).st_size
    return size


def _write(content: Mapping[str, Any]) -> None:
    print(json.dumps(content), flush=True)


if __name__ == "__main__":
    main()
