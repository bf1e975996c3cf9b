"""Programs that need much CPU time to start import without collections and unused modules."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Runs a module as a program, and prints at its end whether collections are enabled, and whether
# they skip the imported objects.
RUN = """
import atexit, gc, runpy, sys
atexit.register(lambda: print(gc.isenabled(), gc.get_freeze_count() > 10_000))
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("module", ["bai_labext", "bai_services.agent", "bai_services.gateway"])
def test_garbage_collections_begin_after_the_imports(module: str) -> None:
    """Garbage collections take a sixth to a quarter of the CPU time of the start of a session, an
    agent or a gateway.
    """
    command = [sys.executable, "-c", RUN, module, "--version"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "True True"


# Names of imported modules, at the end of a program.
MODULES = """
import atexit, runpy, sys
atexit.register(lambda: print(*sys.modules))
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""
# The Hub's modules can still be used after the import of JupyterHub's modules for sessions.
USE = """
from bai_services.system.imports import without_hub_modules
with without_hub_modules():
    from jupyterhub.services import auth
    from jupyterhub import scopes
from jupyterhub.orm import User
from sqlalchemy import inspect
from sqlalchemy.exc import OperationalError
from jupyterhub.handlers.pages import HealthCheckHandler
assert scopes.orm.User is User
assert scopes.sa.inspect is inspect
assert scopes.roles.get_default_roles()
"""
# In another version of JupyterHub, a module may need SQLAlchemy when it is imported.
USE_IN_BLOCK = """
from bai_services.system.imports import without_hub_modules
with without_hub_modules():
    import sqlalchemy as sa
    metadata = sa.MetaData()
    from jupyterhub.log import HealthCheckHandler
    from jupyterhub import orm
from jupyterhub.handlers.pages import HealthCheckHandler as Real
assert HealthCheckHandler is Real
assert orm.Base.metadata is not metadata
"""


def run_code(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_server_of_a_session_starts_without_the_database_and_the_handlers_of_the_hub() -> None:
    """A third of the CPU time of the start of a session.

    If this test fails after a change of JupyterHub's version, see ``without_hub_modules``.
    """
    modules = set(run_code(MODULES, "bai_labext", "--version").split())
    assert "jupyterhub.singleuser" in modules
    assert not modules & {"sqlalchemy", "alembic", "jupyterhub.orm", "jupyterhub.handlers"}


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(USE, id="after the imports"),
        pytest.param(USE_IN_BLOCK, id="during the imports"),
    ],
)
def test_modules_of_the_hub_are_imported_when_they_are_used(code: str) -> None:
    run_code(code)
