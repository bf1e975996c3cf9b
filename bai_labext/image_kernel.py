"""``python -m bai_labext.image_kernel``: start a notebook kernel with the Python of the image.

Notebooks can then import the image's packages. Without a suitable Python in the image, the kernel
runs with the Python of the platform.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    start = str(Path(__file__).with_name("image_kernel_start.py"))
    python = os.environ.get("BAI_IMAGE_PYTHON") or sys.executable
    os.execv(python, [python, start, *sys.argv[1:]])


if __name__ == "__main__":
    main()
