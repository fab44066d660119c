"""A child's tie to the process that started it.

Owns one thing: that no data process outlives its control process, even one that hangs
and cannot see its channel end.
"""

from __future__ import annotations

import ctypes
import os
import signal

#: From <linux/prctl.h>.
_PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """From now on this process is killed when its parent ends; at once if it has.

    `parent`: its pid.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
