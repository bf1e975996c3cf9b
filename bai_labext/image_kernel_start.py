"""Start a notebook kernel; the Python of the image runs this file, so it must support Python 3.9.

If the image has no ipykernel, the platform's kernel packages come last on the module path. If the
image has incompatible versions of their dependencies, the platform's packages come first.
"""

from __future__ import annotations

import os
import sys

FIRST = "BAI_KERNEL_PACKAGES_FIRST"


def main() -> None:
    packages = os.environ.get("BAI_KERNEL_PACKAGES", "")
    # Remove the folder of this file, which Python has put on the path: it contains modules of the
    # platform.
    sys.path[0] = ""
    if packages:
        sys.path.insert(1 if os.environ.pop(FIRST, "") else len(sys.path), packages)
    try:
        from ipykernel.kernelapp import launch_new_instance
    except (ImportError, AttributeError):
        if not packages or sys.path.index(packages) == 1:
            raise
        os.environ[FIRST] = "1"
        os.execv(sys.executable, [sys.executable, __file__, *sys.argv[1:]])
    launch_new_instance()


if __name__ == "__main__":
    main()
