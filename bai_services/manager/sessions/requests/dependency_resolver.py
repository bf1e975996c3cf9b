"""Resolution of the dependencies of requests from names to sessions."""

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
    """Dependencies of sessions that are created together: on each other by name, and on earlier
    ones.
    """

    def __init__(self, news: Sequence[NewSession], asked: Sequence[Sequence[str]]) -> None:
        """Check what can be checked without the database.

        Raises
        ------
        InvalidRequest
            If two have the same name, one has too many dependencies, or they form a cycle.
        """
        self._news = news
        self._asked = [list(dict.fromkeys(keys)) for keys in asked]
        twice = [name for name, count in Counter(new.name for new in news).items() if count > 1]
        if twice:
            raise InvalidRequest(
                f"{len(twice)} names occur more than once, such as {twice[0]!r}; sessions "
                "that are created together need different names",
                field="name",
            )
        for new, keys in zip(news, self._asked, strict=True):
            if len(keys) > MAX_DEPENDENCIES:
                raise InvalidRequest(
                    f"session {new.name} depends on {len(keys)} others; at most "
                    f"{MAX_DEPENDENCIES} are allowed",
                    field="dependencies",
                )
        check_no_cycles({new.name: keys for new, keys in zip(news, self._asked, strict=True)})
        self._own = {new.name: new.id for new in news}

    @property
    def outside(self) -> list[str]:
        """Return the ids and names of sessions that must exist already."""
        return sorted({key for keys in self._asked for key in keys if key not in self._own})

    def resolved(self, found: Mapping[str, Dependency]) -> list[NewSession]:
        """Return the sessions with the ids of their dependencies; ``found`` are the existing ones.

        Raises
        ------
        NotFound
            If the owner has no session of an id or a name.
        Conflict
            If one has ended without success.
        """
        for key in self.outside:
            if key not in found:
                raise NotFound(
                    f"you have no session {key[:80]!r} to depend on; a session can only depend "
                    "on sessions of the same owner",
                    session=key[:80],
                )
        check_none_failed([found[key] for key in self.outside])
        return [
            replace(
                new,
                dependencies=tuple(
                    self._own[key] if key in self._own else found[key].id for key in keys
                ),
            )
            for new, keys in zip(self._news, self._asked, strict=True)
        ]
