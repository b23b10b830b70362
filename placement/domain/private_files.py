"""Files with secrets, and who may read them."""

from __future__ import annotations

import os
import stat

_ROOT = 0


def is_open_to_others(status: os.stat_result) -> bool:
    """Whether others than its owner may use the file.

    A file that root lends to the group of this process is not open: so Kubernetes mounts secrets for
    processes that are not root (fsGroup), and so Debian keeps keys for its servers.
    """
    lent = stat.S_IRGRP if status.st_uid == _ROOT != os.geteuid() else 0
    return bool(status.st_mode & (stat.S_IRWXG | stat.S_IRWXO) & ~lent)
