"""Faster imports: without garbage collections, and without modules that are not used."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


@contextmanager
def no_garbage_collections() -> Iterator[None]:
    """Disable garbage collections in the block, which take a sixth of the CPU time of imports.

    Later collections skip the imported objects, which are never garbage.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class _StandIn(ModuleType):
    """Stands for a module while other modules are imported.

    If one of them uses an attribute, no further stand-in is used, and the real module is imported.
    """

    def __init__(self, name: str, others: dict[str, _StandIn], **attributes: object) -> None:
        super().__init__(name)
        self.__dict__.update(attributes)
        self._others = others

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _remove(self._others)
        return getattr(importlib.import_module(self.__name__), name)


def _remove(stand_ins: dict[str, _StandIn]) -> None:
    for name, stand_in in stand_ins.items():
        if sys.modules.get(name) is stand_in:
            del sys.modules[name]


@contextmanager
def without_hub_modules() -> Iterator[None]:
    """Import JupyterHub's modules for services and sessions without those of the Hub itself.

    ``jupyterhub.services.auth`` and ``jupyterhub.log`` import the Hub's handlers and database for
    functions and checks that only the Hub needs. Without them, and without SQLAlchemy, the server
    of a session needs a third less CPU time to start. After the block, imports find the real
    modules.
    """
    stand_ins: dict[str, _StandIn] = {}

    def stand_in(name: str, **attributes: object) -> None:
        if name not in sys.modules:
            stand_ins[name] = _StandIn(name, stand_ins, **attributes)

    stand_in("jupyterhub.orm")
    stand_in("jupyterhub.roles")
    stand_in("jupyterhub.handlers.pages", HealthCheckHandler=_HubOnly)
    stand_in("sqlalchemy")
    stand_in("sqlalchemy.exc", SQLAlchemyError=_HubOnly)
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        _remove(stand_ins)


class _HubOnly(Exception):
    """Stands for classes that have instances only in the Hub: a handler and a database error."""
