"""The memory that all processes share.

Owns its layout: a row of loads, and a few totals, per data process. Each row is written
by its process alone; the control process sets that of a dead one to zero. The memory
has no name, so nothing of it can be left behind: it goes with the last process that
has it.
"""

from __future__ import annotations

import mmap
import os

import numpy as np
from numpy.typing import NDArray

#: Slots there can be at most. Only memory that was written to exists.
SLOTS = 1 << 17
#: Of each process: what it holds of what is bounded for all together.
TOTALS = ("buffered_bytes", "hold_waiting")

_ROW = SLOTS * 4
_TOTALS = 64  # bytes a process: a cache line of its own
assert len(TOTALS) * 8 <= _TOTALS


class Memory:
    """Rows and totals of `processes` data processes, in the file `fd`."""

    def __init__(self, fd: int, processes: int) -> None:
        """Maps what `create` made, here or in the process that started this one."""
        #: To be inherited by the data processes.
        self.fd = fd
        size = processes * (_ROW + _TOTALS)
        mapped = mmap.mmap(fd, size)
        #: int32[processes, SLOTS]: requests in flight.
        self.rows: NDArray[np.int32] = np.frombuffer(
            mapped, np.int32, processes * SLOTS
        ).reshape(processes, SLOTS)
        #: int64[processes, 8], of which TOTALS are used.
        self.totals: NDArray[np.int64] = np.frombuffer(
            mapped, np.int64, processes * _TOTALS // 8, processes * _ROW
        ).reshape(processes, _TOTALS // 8)

    @classmethod
    def create(cls, processes: int) -> Memory:
        """New memory, all zero. Raises OSError."""
        size = processes * (_ROW + _TOTALS)
        fd = os.memfd_create("fleetrouter")
        os.ftruncate(fd, size)
        return cls(fd, processes)

    def forget(self, row: int) -> None:
        """A process is dead: what it counted is given back."""
        self.rows[row] = 0
        self.totals[row] = 0

    def close(self) -> None:
        """Lets go of the file; what is mapped goes with its last reader."""
        os.close(self.fd)
