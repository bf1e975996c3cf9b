"""Hide the queries of source URLs from monitors.

The query of a URL may contain a signature that gives access to the file.
"""

from __future__ import annotations

from bai_services.core.accounts.roles import Caller, Role
from bai_services.core.errors import InvalidRequest
from bai_services.core.listing import ListQuery


def source_for(caller: Caller, source: str) -> str:
    """Return the source of an import, without its query if the caller is a monitor."""
    return source.partition("?")[0] if caller.role is Role.MONITOR else source


def check_filters(caller: Caller, query: ListQuery) -> None:
    """Raise ``InvalidRequest`` if a monitor filters by the source, which would reveal its query."""
    if caller.role is Role.MONITOR and any(
        name.partition("__")[0] == "source" for name in query.filters
    ):
        raise InvalidRequest("monitors cannot filter by the source", field="source")
