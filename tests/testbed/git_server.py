"""A git server over HTTPS, and repositories for it."""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from tests.testbed.mail_server import make_certificate

TOKEN = "git-token-1"
_ENVIRON = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}


def git(directory: Path, *arguments: str, stdin: bytes = b"") -> str:
    """Run git without the user's configuration; return its output."""
    done = subprocess.run(
        ("git", *arguments), cwd=directory, env=_ENVIRON, input=stdin, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().strip()


@dataclass
class GitServer:
    """Serves bare repositories below ``root``; ``private`` ones need ``TOKEN``.

    ``redirects``: target URLs by the name of the redirected repository. ``files``: other responses,
    by path.
    """

    root: Path
    url: str = ""
    certificate: Path = Path()
    private: set[str] = field(default_factory=set)
    redirects: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    def repository(self, name: str) -> Path:
        """Create a bare repository."""
        path = self.root / f"{name}.git"
        path.mkdir()
        git(path, "init", "-q", "--bare", "-b", "main")
        return path

    def commit(
        self, path: Path, entries: list[tuple[str, str, bytes]], branch: str = "main"
    ) -> str:
        """Commit files to a branch.

        An entry is (mode, path, content); the content of a submodule (mode 160000) is the id of a
        commit. Entries are written without the checks of ``git add``.
        """
        lines = []
        for mode, name, content in entries:
            if mode == "160000":
                key = content.decode()
            else:
                key = git(path, "hash-object", "-w", "--stdin", stdin=content)
            lines.append((mode, key, name))
        tree = _tree(path, lines)
        made = git(path, "commit-tree", tree, "-m", "test")
        git(path, "update-ref", f"refs/heads/{branch}", made)
        return made

    async def handle(self, request: web.Request) -> web.StreamResponse:
        name = request.path.strip("/").partition("/")[0].removesuffix(".git")
        self.requests.append(request.path_qs)
        if content := self.files.get(request.path):
            return web.Response(body=content)
        if target := self.redirects.get(name):
            return web.Response(status=301, headers={"Location": target})
        if name in self.private:
            encoded = base64.b64encode(f"oauth2:{TOKEN}".encode()).decode()
            if request.headers.get("Authorization") != f"Basic {encoded}":
                return web.Response(status=401, headers={"WWW-Authenticate": "Basic"})
        return await self._backend(request)

    async def _backend(self, request: web.Request) -> web.Response:
        environ = {
            **_ENVIRON,
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": request.path,
            "QUERY_STRING": request.query_string,
            "REQUEST_METHOD": request.method,
            "CONTENT_TYPE": request.headers.get("Content-Type", ""),
            "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
        }
        body = await request.read()
        # aiohttp has decompressed the body.
        environ["CONTENT_LENGTH"] = str(len(body))
        process = await asyncio.create_subprocess_exec(
            *("git", "http-backend"), env=environ,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        output, _ = await process.communicate(body)
        head, _, content = output.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        status = int(headers.pop("Status", "200").split()[0])
        return web.Response(status=status, headers=headers, body=content)


def _tree(path: Path, lines: list[tuple[str, str, str]]) -> str:
    """Write a tree with subtrees; return its id."""
    own: list[str] = []
    below: dict[str, list[tuple[str, str, str]]] = {}
    for mode, key, name in lines:
        first, separator, rest = name.partition("/")
        if separator:
            below.setdefault(first, []).append((mode, key, rest))
        else:
            kind = "commit" if mode == "160000" else "blob"
            own.append(f"{mode} {kind} {key}\t{first}")
    own += [f"040000 tree {_tree(path, inner)}\t{name}" for name, inner in below.items()]
    return git(path, "mktree", "--missing", stdin="".join(f"{line}\n" for line in own).encode())


@asynccontextmanager
async def serve_git(root: Path) -> AsyncIterator[GitServer]:
    await asyncio.to_thread(root.mkdir)
    server = GitServer(root, certificate=make_certificate(root))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.certificate)
    app = web.Application(client_max_size=2**30)
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    server.url = f"https://localhost:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()
