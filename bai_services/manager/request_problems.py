"""Everything that is malformed in a request for a session, reported together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from bai_services.core.errors import InvalidRequest
from bai_services.core.labels import check_preopen_ports
from bai_services.core.resources import MEM, parse_amount
from bai_services.core.session_rules import check_environ, check_session_name


class Request(Protocol):
    """The fields of a request that are checked by themselves."""

    @property
    def name(self) -> str | None: ...
    @property
    def hub_server(self) -> str | None: ...
    @property
    def environ(self) -> Mapping[str, str]: ...
    @property
    def resources(self) -> Mapping[str, str]: ...
    @property
    def shared_memory(self) -> str | None: ...
    @property
    def preopen_ports(self) -> Sequence[int]: ...


def check_together(request: Request) -> None:
    """Return unless several fields are malformed; one alone is left to its own check.

    Raises
    ------
    InvalidRequest
        With ``problems`` in its details: ``field`` and ``problem`` of each.
    """
    name, shared_memory = request.name, request.shared_memory
    is_own_name = name is not None and request.hub_server is None  # the Hub's are converted
    checks: list[tuple[str, Callable[[], object]]] = [
        *([("name", lambda: check_session_name(name or ""))] if is_own_name else []),
        *((f"resources.{slot}", _amount(slot, text)) for slot, text in request.resources.items()),
        *([("shared_memory", _amount(MEM, shared_memory))] if shared_memory is not None else []),
        ("environ", lambda: check_environ(request.environ)),
        ("preopen_ports", lambda: check_preopen_ports(request.preopen_ports, {})),
    ]
    problems: list[dict[str, str]] = []
    for field, check in checks:
        try:
            check()
        except InvalidRequest as error:
            problems.append({"field": field, "problem": error.message})
    if len(problems) > 1:
        text = "; ".join(f"{each['field']}: {each['problem']}" for each in problems)
        raise InvalidRequest(text, problems=problems)


def _amount(slot: str, text: str) -> Callable[[], object]:
    return lambda: parse_amount(slot, text)
