"""Resolve the dependencies of new sessions from names to session ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from bai_services.core.errors import InvalidRequest, NotFound
from bai_services.core.sessions.dependencies import (
    MAX_DEPENDENCIES,
    Dependency,
    check_no_cycles,
    check_none_failed,
)
from bai_services.db.sessions.session_insert import NewSession


class DependencyResolver:
    """Resolves dependencies on existing sessions and on sessions of the same request."""

    def __init__(self, sessions: Sequence[NewSession], keys: Sequence[Sequence[str]]) -> None:
        """Check the names, the numbers of dependencies and the absence of cycles.

        ``keys[i]`` are the dependencies of ``sessions[i]``.

        Raises
        ------
        InvalidRequest
            If two sessions have the same name, if one has too many dependencies, or if there is a
            cycle.
        """
        self._sessions = sessions
        self._keys = [list(dict.fromkeys(each)) for each in keys]
        counts = Counter(session.name for session in sessions)
        duplicates = [name for name, count in counts.items() if count > 1]
        if duplicates:
            raise InvalidRequest(
                f"duplicate session names: {len(duplicates)}, for example {duplicates[0]!r}; "
                "sessions that are created together need different names",
                field="name",
            )
        for session, own_keys in zip(sessions, self._keys, strict=True):
            if len(own_keys) > MAX_DEPENDENCIES:
                raise InvalidRequest(
                    f"session {session.name} has {len(own_keys)} dependencies; the maximum is "
                    f"{MAX_DEPENDENCIES}",
                    field="dependencies",
                )
        check_no_cycles(
            {session.name: own for session, own in zip(sessions, self._keys, strict=True)}
        )
        self._ids = {session.name: session.id for session in sessions}

    @property
    def existing_keys(self) -> list[str]:
        """The ids and names of the dependencies that are not sessions of the same request."""
        return sorted({key for keys in self._keys for key in keys if key not in self._ids})

    def resolve(self, existing: Mapping[str, Dependency]) -> list[NewSession]:
        """Return the sessions with the ids of their dependencies.

        ``existing`` contains the session for each of ``existing_keys``.

        Raises
        ------
        NotFound
            If the owner has no session with that id or name.
        Conflict
            If a dependency has ended without success.
        """
        for key in self.existing_keys:
            if key not in existing:
                raise NotFound(
                    f"you have no session {key[:80]!r} to depend on; a session can only depend "
                    "on sessions of the same owner",
                    field="dependencies",
                    session=key[:80],
                )
        check_none_failed([existing[key] for key in self.existing_keys])
        return [
            replace(
                session,
                dependencies=tuple(
                    self._ids[key] if key in self._ids else existing[key].id for key in keys
                ),
            )
            for session, keys in zip(self._sessions, self._keys, strict=True)
        ]
