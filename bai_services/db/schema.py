"""Migrate a database to a revision of the schema, and compare its schema with ``tables``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from bai_services.core.cluster.model import AgentStatus
from bai_services.core.cluster.protocol import FIRST_PROTOCOL

from .tables import metadata

# Arbitrary id of the advisory lock that serializes concurrent migrations.
_LOCK = 7_318_202


class MigrationFailed(Exception):
    """The migration failed and the database is unchanged; the message has the reason."""


def upgrade(url: str, revision: str = "head") -> None:
    """Create or migrate the tables at ``url``.

    This call blocks, so run it in a thread, not in the event loop. All migrations run in one
    transaction, so a failure leaves the database unchanged.

    Raises
    ------
    MigrationFailed
        If a migration fails, or the database is of a later version.
    """
    with _connected(url) as connection:
        before = MigrationContext.configure(connection).get_current_revision()
        if before is not None and before not in revisions():
            raise MigrationFailed(
                f"the database has revision {before}, which this version does not know: install "
                "the version that has migrated the database, or restore a backup"
            )
        try:
            command.upgrade(_config(connection), revision)
        except Exception as error:  # a migration is arbitrary code
            text = str(getattr(error, "orig", error)).strip() or type(error).__name__
            raise MigrationFailed(
                "the migration of the database failed, and was rolled back to revision "
                f"{before or 'none'}: {text.splitlines()[0]}"
            ) from error


def revisions() -> list[str]:
    """Return every revision, oldest first."""
    scripts = ScriptDirectory.from_config(_config()).walk_revisions()
    return [script.revision for script in scripts][::-1]


def descriptions() -> list[tuple[str, str]]:
    """Return every revision with the first line of its description, oldest first."""
    scripts = ScriptDirectory.from_config(_config()).walk_revisions()
    return [(script.revision, script.doc) for script in scripts][::-1]


def next_revision() -> str:
    """Return the next revision number, as four digits.

    The result follows the highest number, because existing numbers have gaps (there is no 0013).
    """
    return f"{max(map(int, revisions()), default=0) + 1:04}"


def current(url: str) -> str | None:
    """Return the revision of the database at ``url``, None for an empty database.

    This call takes no lock, so it also works while the database is being written.
    """
    with _connected(url, excludes_migrations=False) as connection:
        return MigrationContext.configure(connection).get_current_revision()


def has_tables(url: str) -> bool:
    """Return whether the database at ``url`` contains any table."""
    with _connected(url, excludes_migrations=False) as connection:
        return bool(sa.inspect(connection).get_table_names())


def agent_protocols(url: str) -> dict[str, int]:
    """Return the versions of the agent protocol of agents that have not signed off, by agent.

    The database may have an earlier revision.
    """
    agents = sa.table("agents", sa.column("id"), sa.column("status"), sa.column("facts", sa.JSON))
    select = sa.select(agents.c.id, agents.c.facts).where(agents.c.status != AgentStatus.TERMINATED)
    with _connected(url, excludes_migrations=False) as connection:
        if "agents" not in sa.inspect(connection).get_table_names():
            return {}
        rows = connection.execute(select.order_by(agents.c.id))
        return {row.id: int((row.facts or {}).get("protocol", FIRST_PROTOCOL)) for row in rows}


def differences(url: str) -> list[object]:
    """Return the differences between the database at ``url`` and ``tables``; [] if equal."""
    with _connected(url) as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return list(compare_metadata(context, metadata))


def write_revision(url: str, message: str) -> None:
    """Generate the migration script from the newest revision to the current ``tables``."""
    with _connected(url) as connection:
        command.revision(_config(connection), message, autogenerate=True, rev_id=next_revision())


def _config(connection: sa.Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    return config


@contextmanager
def _connected(url: str, *, excludes_migrations: bool = True) -> Iterator[sa.Connection]:
    """Open a transaction that, by default, excludes other migrations."""
    target = sa.make_url(url)
    is_sqlite = target.get_backend_name() == "sqlite"
    if is_sqlite and target.database:
        Path(target.database).parent.mkdir(parents=True, exist_ok=True)
    engine = sa.create_engine(
        target.set(drivername="sqlite" if is_sqlite else "postgresql+psycopg"),
        poolclass=sa.NullPool,
    )
    if is_sqlite:
        _begin_transactions_with(engine, "BEGIN IMMEDIATE" if excludes_migrations else "BEGIN")
    try:
        with engine.begin() as connection:
            if excludes_migrations and not is_sqlite:
                connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
            yield connection
    finally:
        engine.dispose()


def _begin_transactions_with(engine: sa.Engine, statement: str) -> None:
    @sa.event.listens_for(engine, "connect")
    def connect(connection: sa.engine.interfaces.DBAPIConnection, record: object) -> None:
        # With other isolation levels, the driver begins transactions implicitly, but not before DDL
        # statements.
        connection.isolation_level = None
        connection.execute("PRAGMA busy_timeout=60000")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql(statement)
