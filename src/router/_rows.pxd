"""Loads that several processes count: one row of numbers each, in memory they share.

Owns what a process does with the rows of the others: their sum by slot, as of the last
time it was taken, is part of each slot's load here. A row is written by one process
alone, so nothing is lost where two count at once, and the row of one that died can be
set to zero. Reading a number while its owner writes it gives the old or the new one:
they are aligned words. Knows no Python object.
"""

from libc.stdint cimport int32_t
from libc.string cimport memset

from router._group cimport Group, Table, count_down, count_up


cdef struct Rows:
    int32_t *first          # int32[processes][slots]; NULL: not shared
    int32_t processes
    int32_t slots
    int32_t own             # the row of this process; -1: it picks nothing


cdef inline int32_t sum_of_slot(const Rows *rows, int32_t slot) noexcept nogil:
    # What all processes together count on it now.
    cdef int32_t process, total = 0
    for process in range(rows.processes):
        total += rows.first[<size_t> process * rows.slots + slot]
    return total


cdef inline void sum_of_others(
    const Rows *rows, int32_t *sums, int32_t slots
) noexcept nogil:
    # By slot, of the first so many; row by row, as the memory lies.
    cdef const int32_t *row
    cdef int32_t process, slot
    memset(sums, 0, <size_t> slots * sizeof(int32_t))
    for process in range(rows.processes):
        if process != rows.own:
            row = rows.first + <size_t> process * rows.slots
            for slot in range(slots):
                sums[slot] += row[slot]


cdef inline void recount(
    Group *group, Table *table, int32_t slot, int32_t others
) noexcept nogil:
    # The others count so many now; buckets up to the new load were reserved.
    cdef int32_t change = others - table.others[slot]
    table.others[slot] = others
    if table.place[slot] < 0:
        table.load[slot] += change
        return
    for _ in range(change):
        count_up(group, table, slot)
    for _ in range(-change):
        count_down(group, table, slot)
