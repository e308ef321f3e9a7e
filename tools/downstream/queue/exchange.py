"""Exchanging two folders by one system call, where the system has one."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path

_AT_FDCWD = -100  # linux/fcntl.h
_RENAME_EXCHANGE = 2  # linux/fs.h
_CANNOT = (errno.ENOSYS, errno.EINVAL, errno.EXDEV, errno.EPERM, errno.ENOTSUP)


def exchange(first: Path, second: Path) -> bool:
    """Exchange two paths atomically (renameat2(2), RENAME_EXCHANGE); return False where the system cannot.

    Raises OSError for every other failure.
    """
    if sys.platform != "linux":
        return False
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _CANNOT:
        return False
    raise OSError(code, os.strerror(code), str(second))
