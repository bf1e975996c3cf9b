"""`bai-hub upgrade --check`: the changes that a start of this version would make."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from bai_services import __version__
from bai_services.core.cluster.protocol import is_supported
from bai_services.db import schema

from .folder import changed_files, database_url, hub_database_url, read_settings_file
from .setup import generated_files, outdated_files


@dataclass(frozen=True, slots=True)
class Pending:
    """Changes that the start of this version makes, or that an administrator has to make."""

    version: str
    jupyterhub: str
    revision: str | None
    migrations: tuple[tuple[str, str], ...]  # revision and description
    is_newer_database: bool
    hub_database_is_old: bool
    outdated_files: tuple[str, ...]
    changed_files: tuple[str, ...]
    # Agents that do not work with the manager of this version.
    unsupported_agents: tuple[str, ...] = ()

    @property
    def is_up_to_date(self) -> bool:
        return not (
            self.migrations
            or self.is_newer_database
            or self.hub_database_is_old
            or self.outdated_files
            or self.unsupported_agents
        )


def pending_changes(folder: Path) -> Pending:
    """Compare the databases and generated files with this version; change nothing."""
    installation = read_settings_file(folder)
    current = schema.current(database_url(installation))
    known = schema.descriptions()
    revisions = [revision for revision, _ in known]
    is_newer = current is not None and current not in revisions
    position = revisions.index(current) + 1 if current in revisions else 0
    files = generated_files(installation, folder)
    return Pending(
        version=__version__,
        jupyterhub=version("jupyterhub"),
        revision=current,
        migrations=() if is_newer else tuple(known[position:]),
        is_newer_database=is_newer,
        hub_database_is_old=_hub_database_is_old(hub_database_url(installation)),
        outdated_files=tuple(outdated_files(files, folder)),
        changed_files=tuple(changed_files(folder, files)),
        unsupported_agents=tuple(
            agent
            for agent, protocol in schema.agent_protocols(database_url(installation)).items()
            if not is_supported(protocol)
        ),
    )


def _hub_database_is_old(url: str) -> bool:
    import sqlalchemy as sa
    from jupyterhub import orm

    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        if "spawners" not in sa.inspect(connection).get_table_names():
            return False  # an empty database, which the Hub creates in its newest form
    try:
        orm.check_db_revision(engine)
    except orm.DatabaseSchemaMismatch:
        return True
    return False
