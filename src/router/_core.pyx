# cython: binding=False, embedsignature=True, embedsignature.format=clinic
"""The selection core: who may be picked, how loaded they are, who is picked.

Owns slots (a worker's place: load, availability, identity), groups (workers alike),
pools (what one model can be served by) and the index that is published. Works on
integers, arrays and opaque owners: it must not know what a worker, a model or a URL
is. The structs and the choices are in `_group.pxd`, `_rows.pxd` and `_policies.pxd`;
the classes here and in the `.pxi` files are their doors: they check all that comes from
Python, and own the memory. What each method promises is in `_core.pyi`.

All of it relies on the GIL, and between the first and the last write of a change no
other Python code can run: memory is taken before, objects are let go of after.
"""

cimport cython
from cpython.list cimport PyList_GET_ITEM
from cpython.long cimport PyLong_AsUnsignedLongLongMask
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.math cimport isfinite
from libc.stdint cimport INT32_MAX, int32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from router._group cimport (
    Group, Table, below_limit, count_down, count_up, insert, mix, release_memory,
    remove, reserve_levels, reserve_members
)
from router._policies cimport (
    Choice, Part, Policy, choose, consistent_hash, least_load, permitted,
    power_of_two, random, round_robin
)
from router._rows cimport Rows, recount, sum_of_others, sum_of_slot

import os
from operator import index

import numpy as np


cdef extern from *:
    int __builtin_popcountll(unsigned long long) noexcept nogil
    int __builtin_clzll(unsigned long long) noexcept nogil
    int __builtin_ctzll(unsigned long long) noexcept nogil


cdef enum:
    MOST_SLOTS = 1 << 29    # numbers are int32 and capacity doubles


include "_arrays.pxi"
include "_slot.pxi"


@cython.final
@cython.no_gc_clear
cdef class Slots:
    """The places of all workers, and the groups they are in."""

    cdef Table table
    cdef object arrays      # keep the memory of the table
    cdef object home        # what its slots know it by: a reference would be a cycle
    cdef list living        # number -> Slot; None where the number is free
    cdef list free          # numbers to use again
    cdef list groups        # number -> _Group; None where the number is free
    cdef list free_groups
    cdef uint64_t mark      # counts pools: each has its own
    cdef Rows rows
    cdef object shared      # keeps the memory of the rows
    cdef int32_t most       # slots there can be

    def __cinit__(self, int32_t capacity=64, *, seed=None, rows=None, int32_t row=-1):
        self.most = MOST_SLOTS
        if rows is not None:
            self._share(rows, row)
        elif row >= 0:
            raise ValueError("a row of no rows")
        if not 0 <= capacity <= self.most:
            raise ValueError(f"capacity must be from 0 to {self.most}")
        if seed is None:
            seed = int.from_bytes(os.urandom(8), "little")
        self.table.random = PyLong_AsUnsignedLongLongMask(seed)
        self.home = object()
        self.living = []
        self.free = []
        self.groups = []
        self.free_groups = []
        self._grow(max(64, (capacity + 63) // 64 * 64))

    cdef int _share(self, rows, int32_t row) except -1:
        cdef int32_t[:, ::1] view = rows
        if view.shape[1] < 64 or view.shape[1] % 64 or view.shape[1] > MOST_SLOTS:
            raise ValueError("rows must have a multiple of 64 slots")
        if not -1 <= row < view.shape[0]:
            raise ValueError(f"there is no row {row}")
        self.shared = rows
        self.rows.first = &view[0, 0]
        self.rows.processes = view.shape[0]
        self.rows.slots = self.most = view.shape[1]
        self.rows.own = row
        if row >= 0:
            self.table.own = &view[row, 0]

    cdef int _grow(self, int32_t capacity) except -1:
        # Taking memory may run other code, which may have grown the table meanwhile.
        cdef Table old, new
        if capacity > self.most:
            raise MemoryError(f"no room for more than {self.most} slots")
        cdef dict arrays = _columns(capacity)
        new.load = _int32(arrays["load"])
        new.others = _int32(arrays["others"])
        new.generation = _int32(arrays["generation"])
        new.place = _int32(arrays["place"])
        new.scratch = _int32(arrays["scratch"])
        new.identity = _uint64(arrays["identity"])
        new.available = _uint64(arrays["available"])
        new.excluded = _uint64(arrays["excluded"])
        new.capacity = capacity
        old = self.table
        if capacity <= old.capacity:
            return 0
        new.random = old.random
        new.own = old.own
        if old.capacity:
            memcpy(new.load, old.load, old.capacity * sizeof(int32_t))
            memcpy(new.others, old.others, old.capacity * sizeof(int32_t))
            memcpy(new.generation, old.generation, old.capacity * sizeof(int32_t))
            memcpy(new.place, old.place, old.capacity * sizeof(int32_t))
            memcpy(new.identity, old.identity, old.capacity * sizeof(uint64_t))
            memcpy(new.available, old.available, old.capacity // 64 * sizeof(uint64_t))
        self.table = new
        self.arrays = arrays
        return 0

    # --- introspection ----------------------------------------------------------------

    @property
    def capacity(self):
        """Slots there is memory for."""
        return self.table.capacity

    @property
    def load(self):
        """Requests in flight by slot number, int32[capacity]; a copy."""
        return self.arrays["load"].copy()

    @property
    def available(self):
        """Bit words over the slot numbers, uint64[capacity / 64]; a copy."""
        return self.arrays["available"].copy()

    def at(self, int32_t number):
        """The slot that lives at this number, or None."""
        return self.living[number] if 0 <= number < len(self.living) else None

    def load_of(self, Slot slot not None):
        """Requests in flight on the slot."""
        self._check(slot)
        if not self._lives(slot):
            return 0
        if self._gives_out():
            return sum_of_slot(&self.rows, slot.number)
        return self.table.load[slot.number]

    def is_available(self, Slot slot not None):
        """Whether a pick may give the slot."""
        self._check(slot)
        return self._lives(slot) and self.table.place[slot.number] >= 0

    def group_of(self, Slot slot not None):
        """Number of the slot's group; -1 once retired."""
        self._check(slot)
        return -1 if slot.group is None else slot.group.number

    def group_size(self, int32_t group):
        """Slots in the group, available or not."""
        return self._group(group).members

    def order(self, int32_t group):
        """The available slots of a group as the core holds them, int32; a copy."""
        cdef _Group owner = self._group(group)
        cdef int32_t[::1] out
        numbers = np.empty(owner.state.count, np.int32)
        if owner.state.count:
            out = numbers
            memcpy(&out[0], owner.state.order, owner.state.count * sizeof(int32_t))
        return numbers

    # --- slots ------------------------------------------------------------------------

    cdef inline int _check(self, Slot slot) except -1:
        if slot.home is not self.home:
            raise ValueError(f"{slot!r} is not of these slots")
        return 0

    cdef inline int32_t *_counted(self) noexcept:
        # What this process itself counts.
        return self.table.load if self.table.own == NULL else self.table.own

    cdef inline bint _gives_out(self) noexcept:
        return self.rows.first != NULL and self.table.own == NULL

    cdef inline bint _lives(self, Slot slot) noexcept:
        # False once retired and empty: the number may be another worker's.
        return PyList_GET_ITEM(self.living, slot.number) == <PyObject *> slot

    def acquire(self, owner, identity, int32_t group, place=None):
        """A place for a worker: not available, no load of this process."""
        cdef uint64_t hashed = mix(PyLong_AsUnsignedLongLongMask(identity))
        cdef _Group joined = self._group(group)
        cdef Slot slot = Slot.__new__(Slot)
        slot._owner = owner
        slot.home = self.home
        if (place is not None) != (self.table.own != NULL):
            raise ValueError("places are given with an own row, and only then")
        if place is not None:
            self._take_place(slot, joined, place[0], place[1])
            self.table.identity[slot.number] = hashed
            return slot
        while not self.free and len(self.living) == self.table.capacity:
            self._grow(self.table.capacity * 2)
        self._join(slot, joined)
        if self.free:
            slot.number = self.free.pop()
            self.living[slot.number] = slot
        else:
            slot.number = len(self.living)
            self.living.append(slot)
        slot.generation = self.table.generation[slot.number]
        self.table.identity[slot.number] = hashed
        return slot

    cdef int _take_place(
        self, Slot slot, _Group joined, int32_t number, int32_t generation
    ) except -1:
        if not 0 <= number < self.most or generation < 0:
            raise ValueError(f"there is no place {number}")
        while number >= self.table.capacity:
            self._grow(self.table.capacity * 2)
        self.living.extend([None] * (number + 1 - len(self.living)))
        if self.living[number] is not None:
            raise ValueError(f"{self.living[number]!r} is still in use")
        self._join(slot, joined)
        slot.number = number
        slot.generation = self.table.generation[number] = generation
        self.table.load[number] = sum_of_slot(&self.rows, number)
        self.table.others[number] = self.table.load[number] - self.table.own[number]
        self.living[number] = slot
        return 0

    def retire(self, Slot slot not None):
        """Take the slot out for good; its number is free once it is empty."""
        self._check(slot)
        if slot.group is None:
            return
        self._set_available(slot, False)
        slot.group.members -= 1
        slot.group = None
        # Who gives out shared numbers cannot know here who else may pick the slot.
        if self._counted()[slot.number] == 0 and not self._gives_out():
            self._let_go(slot)

    def reclaim(self, Slot slot not None):
        """Free the number of a retired slot that no process counts anything on."""
        self._check(slot)
        if slot.group is not None or not self._gives_out():
            raise ValueError(f"{slot!r} is not to be reclaimed here")
        if self._lives(slot) and sum_of_slot(&self.rows, slot.number) == 0:
            self._let_go(slot)
        return not self._lives(slot)

    def refresh(self):
        """Count in what the other processes count now; how many slots changed."""
        cdef int32_t number, others, change, changed = 0
        cdef int32_t count = min(len(self.living), self.table.capacity)
        cdef Group *group = NULL
        cdef Slot slot
        if self.rows.first == NULL:
            return 0
        sum_of_others(&self.rows, self.table.scratch, count)
        for number in range(count):
            others = self.table.scratch[number]
            change = others - self.table.others[number]
            if change == 0:
                continue
            changed += 1
            if self.table.place[number] >= 0:
                slot = <Slot> PyList_GET_ITEM(self.living, number)
                group = &slot.group.state
                if not reserve_levels(group, self.table.load[number] + change):
                    raise MemoryError
            recount(group, &self.table, number, others)
        return changed

    cdef int _let_go(self, Slot slot) except -1:
        self.table.generation[slot.number] += 1
        self.living[slot.number] = None
        if self.table.own == NULL:
            self.free.append(slot.number)
        return 0

    def release(self, Slot slot not None):
        """One request less in flight; False if none was counted."""
        cdef int32_t number = slot.number
        self._check(slot)
        cdef int32_t *counted = self._counted()
        if not self._lives(slot) or counted[number] == 0:
            return False
        if self.table.own != NULL:
            self.table.own[number] -= 1
        if self.table.place[number] >= 0:
            count_down(&slot.group.state, &self.table, number)
            return True
        self.table.load[number] -= 1
        if slot.group is None and counted[number] == 0:
            self._let_go(slot)
        return True

    def set_available(self, Slot slot not None, bint available):
        """Let picks give the slot, or not, from now on."""
        self._check(slot)
        if slot.group is not None:
            self._set_available(slot, available)

    cdef int _set_available(self, Slot slot, bint available) except -1:
        cdef int32_t number = slot.number
        cdef uint64_t bit = <uint64_t> 1 << (number & 63)
        if available == (self.table.place[number] >= 0):
            return 0
        if available:
            if not reserve_levels(&slot.group.state, self.table.load[number]):
                raise MemoryError
            insert(&slot.group.state, &self.table, number)
            self.table.available[number >> 6] |= bit
        else:
            remove(&slot.group.state, &self.table, number)
            self.table.available[number >> 6] &= ~bit
        return 0

    # --- groups -----------------------------------------------------------------------

    cdef _Group _group(self, int32_t number):
        if not 0 <= number < len(self.groups) or self.groups[number] is None:
            raise ValueError(f"there is no group {number}")
        return self.groups[number]

    def add_group(self, double weight, int32_t tier, int32_t provider, int32_t limit):
        """A new group, empty; its number."""
        cdef _Group group
        if not (isfinite(weight) and weight > 0):
            raise ValueError("weight must be finite and above 0")
        if provider < 0 or limit < 0:
            raise ValueError("provider and limit must not be negative")
        group = _Group.__new__(_Group)
        group.state.weight = weight
        group.state.tier = tier
        group.state.provider = provider
        group.state.limit = limit
        if not reserve_levels(&group.state, 0):
            raise MemoryError
        if self.free_groups:
            group.number = self.free_groups.pop()
            self.groups[group.number] = group
        else:
            group.number = len(self.groups)
            self.groups.append(group)
        return group.number

    def drop_group(self, int32_t group):
        """Forget an empty group; its number is free."""
        if self._group(group).members:
            raise ValueError(f"group {group} is not empty")
        self.groups[group] = None
        self.free_groups.append(group)

    cdef int _join(self, Slot slot, _Group group) except -1:
        if not reserve_members(&group.state, group.members + 1):
            raise MemoryError
        group.members += 1
        slot.group = group
        return 0

    cdef int _move(self, Slot slot, _Group group) except -1:
        cdef _Group left = slot.group
        cdef int32_t number = slot.number
        cdef bint available = self.table.place[number] >= 0
        if left is None or left is group:
            return 0
        if not reserve_levels(&group.state, self.table.load[number]):
            raise MemoryError
        self._join(slot, group)
        left.members -= 1
        if available:
            remove(&left.state, &self.table, number)
            insert(&group.state, &self.table, number)
        return 0


include "_pool.pxi"
include "_index.pxi"
