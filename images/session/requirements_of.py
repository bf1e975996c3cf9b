"""Print what an extra of a pyproject.toml asks for, one requirement a line.

Own file and own build stage: the layer that installs these is then kept while only code changes.
"""

from __future__ import annotations

import sys
import tomllib


def main(path: str, extra: str) -> None:
    with open(path, "rb") as file:
        project = tomllib.load(file)["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"][extra]]
    sys.stdout.write("".join(f"{requirement}\n" for requirement in sorted(wanted)))


if __name__ == "__main__":
    main(*sys.argv[1:3])
