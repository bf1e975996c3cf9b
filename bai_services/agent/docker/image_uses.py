"""Times at which bai-hub last used the images of this machine, for evicting unused images."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping
from pathlib import Path

log = logging.getLogger(__name__)


class ImageUses:
    """Last use by image name, stored in a file; ``limit_bytes`` 0 means no limit for images.

    Only images in this file are evicted, so images of other programs are kept.
    """

    def __init__(self, path: Path, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._path = path
        self._times = _read(path)
        # The methods run in several threads.
        self._lock = threading.Lock()

    def record(self, name: str) -> None:
        """Record that an image is used now."""
        with self._lock:
            self._times[name] = time.time()
            self._write()

    def forget(self, names: set[str]) -> None:
        """Remove images that no longer exist."""
        with self._lock:
            if names & self._times.keys():
                self._times = {name: at for name, at in self._times.items() if name not in names}
                self._write()

    @property
    def times(self) -> Mapping[str, float]:
        return dict(self._times)

    def _write(self) -> None:
        temporary = self._path.with_name(f".{self._path.name}")
        try:
            temporary.write_text(json.dumps(self._times))
            temporary.replace(self._path)
        except OSError as error:
            # Continue, because the times are still in memory; they are lost only at a restart.
            log.warning("the times of the last use of images cannot be stored: %s", error.strerror)


def _read(path: Path) -> dict[str, float]:
    try:
        data = json.loads(path.read_text())
        return {str(name): float(at) for name, at in data.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}
