"""How many cores this process may use.

Owns two looks at the system: at the cores the process may run on, and at the quota of
its container. A quota that is set further up, for several of them, is not looked for.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

#: Where a container sees its own control group.
_CONTROL_GROUP = Path("/sys/fs/cgroup")


def cores(group: Path = _CONTROL_GROUP) -> int:
    """At least 1. A part of a core that a quota grants does not count.

    `group`: folder of a control group, of either version.
    """
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    else:
        allowed = os.cpu_count() or 1
    return max(1, math.floor(min(allowed, _quota(group))))


def _quota(group: Path) -> float:
    """Cores' worth of time; infinite where there is no limit."""
    try:
        if (group / "cpu.max").exists():
            quota, period = (group / "cpu.max").read_text().split()
        else:
            quota = (group / "cpu" / "cpu.cfs_quota_us").read_text()
            period = (group / "cpu" / "cpu.cfs_period_us").read_text()
        limit = math.inf if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return math.inf
    return limit if limit > 0 else math.inf
