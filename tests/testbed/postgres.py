"""A PostgreSQL server for tests on a Unix socket in a temporary folder."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.testbed import ComponentMissing
from tests.testbed.wait import wait_until

USER = "bai"

# Test data need not survive a crash, and flushing it to disk would take most of a test's time.
NOT_DURABLE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
SETTINGS = {
    "max_connections": "200",
    "shared_buffers": "64MB",
    "listen_addresses": "",
    "log_min_messages": "warning",
    "max_wal_size": "128MB",
}


# A copied database has 600 files: on a disk the copy takes 0.4 s, in memory 20 ms.
MEMORY = Path("/dev/shm")
MEMORY_BYTES = 2**30


class Postgres:
    """A running server, in which tests create databases."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = itertools.count(1)

    def url(self, database: str) -> str:
        """Return the SQLAlchemy URL of a database on this server."""
        return f"postgresql+psycopg://{USER}@/{database}?host={self.folder}"

    def execute(self, statement: str, database: str = "postgres") -> None:
        """Run one statement as superuser, outside a transaction."""
        import psycopg

        with psycopg.connect(
            host=str(self.folder), user=USER, dbname=database, autocommit=True
        ) as connection:
            connection.execute(statement.encode())

    def create_database(self, template: str = "template0") -> str:
        """Create a database and return its name."""
        name = f"bai_{os.getpid()}_{next(self._numbers)}"
        # For a small database, it is faster to copy the files than to write the pages to the
        # write-ahead log.
        self.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY file_copy')
        return name

    def drop_database(self, name: str) -> None:
        """Disconnect all clients of a database and delete it."""
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    @contextmanager
    def database(self, template: str = "template0") -> Iterator[str]:
        """Yield the URL of a new database; delete it at the end."""
        name = self.create_database(template)
        try:
            yield self.url(name)
        finally:
            self.drop_database(name)

    def is_ready(self) -> bool:
        import psycopg

        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True


def find_programs() -> Path:
    """Return the folder with the programs ``initdb`` and ``postgres``.

    Raises
    ------
    ComponentMissing
        If PostgreSQL is not installed.
    """
    program = shutil.which("initdb")
    if program:
        return Path(program).resolve().parent
    # Debian installs the server's programs outside of PATH, in one folder per version.
    folders = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if not folders:
        raise ComponentMissing("PostgreSQL is not installed (scripts/testbed install)")
    return max(folders, key=lambda folder: float(folder.parent.name))


def _unprivileged_prefix(folder: Path) -> list[str]:
    """Return words to put before a command, so that the command exits when this process exits.

    If this process is root, the command runs as ``postgres``: PostgreSQL refuses to run as root.
    """
    prefix = ["setpriv", "--pdeathsig=INT"]
    if os.geteuid() != 0:
        return prefix
    try:
        account = pwd.getpwnam("postgres")
    except KeyError as error:
        raise ComponentMissing("there is no user `postgres` to run the server") from error
    os.chown(folder, account.pw_uid, account.pw_gid)
    ids = [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
    return [*prefix, *ids]


def _has_memory() -> bool:
    """Return whether `MEMORY` has room for the databases; in many containers it has 64 MiB."""
    return MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES


@contextmanager
def running(is_durable: bool = False) -> Iterator[Postgres]:
    """Start a server and stop it at the end of the block, or when this process ends.

    With ``is_durable``, each commit is written to disk, as on a production server.

    Raises
    ------
    ComponentMissing
        If PostgreSQL is not installed or does not start.
    """
    programs = find_programs()
    # Use a short path: the path of a Unix socket may have at most 107 characters.
    parent = "/tmp" if is_durable or not _has_memory() else str(MEMORY)
    folder = Path(tempfile.mkdtemp(prefix="bai-pg-", dir=parent))
    try:
        prefix = _unprivileged_prefix(folder)
        data = folder / "data"
        made = subprocess.run(
            [*prefix, str(programs / "initdb"), "-D", str(data), "-U", USER, "-A", "trust"]
            + ["--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"],
            capture_output=True,
            text=True,
            cwd=folder,
        )
        if made.returncode:
            raise ComponentMissing(f"initdb failed: {made.stderr.strip()}")
        settings = SETTINGS if is_durable else SETTINGS | NOT_DURABLE
        options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        with open(folder / "log", "wb") as log:
            process = subprocess.Popen(
                [*prefix, str(programs / "postgres"), "-D", str(data), "-k", str(folder), *options],
                stdout=log,
                stderr=log,
                cwd=folder,
            )
        server = Postgres(folder)
        try:
            wait_until(
                lambda: process.poll() is not None or server.is_ready(), 30, "PostgreSQL to respond"
            )
            if process.poll() is not None:
                raise ComponentMissing(f"postgres ended: {(folder / 'log').read_text().strip()}")
            yield server
        finally:
            # SIGINT: disconnect all clients and exit ("fast shutdown").
            process.send_signal(2)
            process.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
