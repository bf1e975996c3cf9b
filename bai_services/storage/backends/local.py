"""Backend for any mounted file system, such as a local disk, NFS, SMB, EFS or GlusterFS."""

from __future__ import annotations

from ..base import Capability
from ..trees import can_share_blocks
from .backend import Backend


class LocalBackend(Backend):
    """Uses operations that every file system supports, and reflinks where available.

    The manager rejects its own writes that would exceed a quota. Writes by sessions are counted,
    but not limited.
    """

    def capabilities(self) -> frozenset[Capability]:
        return frozenset({Capability.FAST_CLONE} if can_share_blocks(self.root) else ())
