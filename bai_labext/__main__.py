"""``python -m bai_labext``: a session's single-user server, with the session's settings."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bai_labext import config_path


@contextmanager
def _no_program_found() -> Iterator[None]:
    path = os.environ.get("PATH")
    os.environ["PATH"] = ""
    try:
        yield
    finally:
        if path is None:
            del os.environ["PATH"]
        else:
            os.environ["PATH"] = path


def import_without_slow_parts() -> None:
    """Import JupyterLab without the two imports that take most of a session's start time.

    - jsonschema checks `iri` formats if rfc3987_syntax is installed, which builds a grammar at
      import: 0.6 s of CPU time. No schema of Jupyter uses that format.
    - JupyterLab queries yarn's settings if it finds node: 0.3 s. They are for builds, which a
      session never makes because its extension manager is read-only.
    """
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # "not installed"
    with _no_program_found():
        import jupyterlab.labapp  # noqa: F401


def main() -> None:
    """Run ``jupyterhub-singleuser`` with the arguments of this process."""
    before = os.environ.get("JUPYTER_CONFIG_PATH", "").split(os.pathsep)
    ours = [config_path(), *(path for path in before if path and path != config_path())]
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(ours)
    import_without_slow_parts()
    from jupyterhub.singleuser import main as run_singleuser

    run_singleuser()


if __name__ == "__main__":
    main()
