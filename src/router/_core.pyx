# cython: binding=False, embedsignature=True, embedsignature.format=clinic
"""The selection core: who may be picked, how loaded they are, who is picked.

Owns slots (a worker's place: load, availability, identity), groups (workers alike),
pools (what one model can be served by) and the index that is published. Works on
integers, arrays and opaque owners: it must not know what a worker, a model or a URL
is. The structs and the choices are in `_group.pxd` and `_policies.pxd`; the classes
here and in `_pool.pxi` are their doors: they check all that comes from Python, and own
the memory. What each method promises is in `_core.pyi`.

All of it relies on the GIL, and between the first and the last write of a change no
other Python code can run: memory is taken before, objects are let go of after.
"""

cimport cython
from cpython.list cimport PyList_GET_ITEM
from cpython.long cimport PyLong_AsUnsignedLongLongMask
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.math cimport isfinite
from libc.stdint cimport int32_t, uint64_t
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

import os
from operator import index

import numpy as np


cdef extern from *:
    int __builtin_popcountll(unsigned long long) noexcept nogil
    int __builtin_clzll(unsigned long long) noexcept nogil
    int __builtin_ctzll(unsigned long long) noexcept nogil


cdef enum:
    MOST_SLOTS = 1 << 29    # numbers are int32 and capacity doubles


@cython.final
@cython.internal
cdef class _Group:
    """Owner of a group's memory. One that was dropped stays empty for ever."""

    cdef Group state
    cdef int32_t number
    cdef int32_t members    # available or not

    def __dealloc__(self):
        release_memory(&self.state)


@cython.final
cdef class Slot:
    """A worker's place, for one life of that worker."""

    cdef readonly int number
    cdef readonly int generation
    cdef object _owner
    cdef object home        # the token of the Slots it is of
    cdef _Group group       # None once retired

    def __init__(self):
        raise TypeError("a slot is made by Slots.acquire")

    @property
    def owner(self):
        """What the caller keeps here."""
        return self._owner

    @owner.setter
    def owner(self, value):
        old = self._owner   # let go of last: that may run any code
        self._owner = value
        del old

    def __repr__(self):
        return f"<Slot {self.number} generation {self.generation}>"


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

    def __cinit__(self, int32_t capacity=64, *, seed=None):
        if not 0 <= capacity <= MOST_SLOTS:
            raise ValueError(f"capacity must be from 0 to {MOST_SLOTS}")
        if seed is None:
            seed = int.from_bytes(os.urandom(8), "little")
        self.table.random = PyLong_AsUnsignedLongLongMask(seed)
        self.home = object()
        self.living = []
        self.free = []
        self.groups = []
        self.free_groups = []
        self._grow(max(64, (capacity + 63) // 64 * 64))

    cdef int _grow(self, int32_t capacity) except -1:
        # Taking memory may run other code, which may have grown the table meanwhile.
        cdef Table old, new
        if capacity > MOST_SLOTS:
            raise MemoryError(f"no room for more than {MOST_SLOTS} slots")
        arrays = {
            "load": np.zeros(capacity, np.int32),
            "generation": np.zeros(capacity, np.int32),
            "place": np.full(capacity, -1, np.int32),
            "scratch": np.zeros(capacity, np.int32),
            "identity": np.zeros(capacity, np.uint64),
            "available": np.zeros(capacity // 64, np.uint64),
            "excluded": np.zeros(capacity // 64, np.uint64),
        }
        new.load = _int32(arrays["load"])
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
        if old.capacity:
            memcpy(new.load, old.load, old.capacity * sizeof(int32_t))
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
        return self.table.load[slot.number] if self._lives(slot) else 0

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

    cdef inline bint _lives(self, Slot slot) noexcept:
        # False once retired and empty: the number may be another worker's.
        return PyList_GET_ITEM(self.living, slot.number) == <PyObject *> slot

    def acquire(self, owner, identity, int32_t group):
        """A place for a worker: not available, no load."""
        cdef uint64_t hashed = mix(PyLong_AsUnsignedLongLongMask(identity))
        cdef _Group joined = self._group(group)
        cdef Slot slot = Slot.__new__(Slot)
        slot._owner = owner
        slot.home = self.home
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

    def retire(self, Slot slot not None):
        """Take the slot out for good; its number is free once it is empty."""
        self._check(slot)
        if slot.group is None:
            return
        self._set_available(slot, False)
        slot.group.members -= 1
        slot.group = None
        if self.table.load[slot.number] == 0:
            self._let_go(slot)

    cdef int _let_go(self, Slot slot) except -1:
        self.table.generation[slot.number] += 1
        self.living[slot.number] = None
        self.free.append(slot.number)
        return 0

    def release(self, Slot slot not None):
        """One request less in flight; False if none was counted."""
        cdef int32_t number = slot.number
        self._check(slot)
        if not self._lives(slot) or self.table.load[number] == 0:
            return False
        if self.table.place[number] >= 0:
            count_down(&slot.group.state, &self.table, number)
            return True
        self.table.load[number] -= 1
        if slot.group is None and self.table.load[number] == 0:
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


@cython.final
cdef class Index:
    """What is published: one reference, replaced as a whole."""

    cdef readonly Slots slots
    cdef object _current

    def __cinit__(self, Slots slots not None):
        self.slots = slots

    @property
    def current(self):
        """What was published last; None before."""
        return self._current

    def publish(self, current, moved, groups):
        """Move slots to groups and make `current` current, in one step."""
        cdef list slots = list(moved)
        cdef list targets = [self.slots._group(index(number)) for number in groups]
        cdef Py_ssize_t i
        if len(slots) != len(targets):
            raise ValueError("moved and groups must be of one length")
        for slot in slots:
            if not isinstance(slot, Slot):
                raise TypeError("moved must hold slots")
            self.slots._check(<Slot> slot)
        old = self._current     # let go of last: that may run any code
        for i in range(len(targets)):
            self.slots._move(
                <Slot> PyList_GET_ITEM(slots, i), <_Group> PyList_GET_ITEM(targets, i)
            )
        self._current = current
        del old


# --- doors between arrays and pointers ------------------------------------------------

cdef int32_t *_int32(array) except NULL:
    cdef int32_t[::1] view = array
    return &view[0]


cdef uint64_t *_uint64(array) except NULL:
    cdef uint64_t[::1] view = array
    return &view[0]
