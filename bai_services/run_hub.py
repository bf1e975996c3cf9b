"""Run JupyterHub without an import that takes more CPU time than the rest of its start.

    python -m bai_services.run_hub [ARGUMENT …]

If rfc3987_syntax is installed, jsonschema imports it to validate the format `iri`. The module
builds a grammar at import. No schema of the Hub uses that format; without the module, jsonschema
does not validate `iri`.
"""

from __future__ import annotations

import sys


def main() -> None:
    # None makes Python treat the module as not installed.
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    from jupyterhub.app import main as run_jupyterhub

    run_jupyterhub()


if __name__ == "__main__":
    main()
