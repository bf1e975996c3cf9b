"""``python -m bai_labext.image_entry``: entry point of containers with mounted platform parts.

Commands of the platform run with the Python of these parts; the image's own programs stay first on
``PATH``. Without arguments, it starts the session's Jupyter server.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

# Use isolated mode, because variables of the image such as PYTHONPATH are for the image's own
# Python.
ISOLATED = "-I"


def command_of(arguments: Sequence[str], python: str) -> list[str]:
    """Return the command that a container runs for the command of its plan."""
    if not arguments or arguments[0] == "jupyterhub-singleuser":
        return [python, ISOLATED, "-m", "bai_labext", *arguments[1:]]
    if arguments[0] == "python3" and ISOLATED in arguments:
        return [python, *arguments[1:]]
    return list(arguments)


def main() -> None:
    command = command_of(sys.argv[1:], sys.executable)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
