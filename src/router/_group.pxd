"""Slots and groups as plain structs, and the few operations that keep them in order.

Owns the bucket-sorted permutation: the available members of a group sorted by their
load, with the start of every load's bucket, so that the least loaded members are the
first ones, those below a limit are a prefix, and counting one request up or down
swaps one member with the border of its bucket. Knows no Python object: memory is
taken here with realloc, which runs no Python code, and freed by the owner of the
struct (`_core._Group`).
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove


cdef struct Table:
    # What every slot has, as columns; the numpy arrays behind them are held by Slots.
    int32_t *load           # requests in flight, those of other processes included
    int32_t *own            # those of this process, in its shared row; NULL: all are
    int32_t *others         # those of other processes, as they were last looked at
    int32_t *generation     # lives of the number that are over
    int32_t *place          # index in the order of its group; -1: not available
    uint64_t *available     # bit words
    uint64_t *excluded      # bit words: what the running pick must not give; else 0
    uint64_t *identity      # hash of the worker's identity
    int32_t *scratch        # room for one filtered group after the other
    int32_t capacity
    uint64_t random         # state of the generator


cdef struct Group:
    int32_t *order          # available members by load
    int32_t *start          # start[l]: how many of them have a load below l
    int32_t *ring           # the same members by slot number: whose turn it is
    uint32_t *seeds         # beside ring: what rendezvous hashing scores
    int32_t room            # members the three arrays of members have room for
    int32_t levels          # loads that have a bucket: 0 .. levels - 1
    int32_t count           # available members
    int32_t least           # lowest load among them; no meaning when there are none
    int64_t total           # sum of their loads
    double weight
    int32_t tier
    int32_t provider
    int32_t limit           # 0: none


# --- random numbers -------------------------------------------------------------------

cdef inline uint64_t mix(uint64_t x) noexcept nogil:
    # The finaliser of splitmix64 (Steele, Lea, Flood 2014): a bijection of 64 bits.
    x = (x ^ (x >> 30)) * <uint64_t> 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * <uint64_t> 0x94D049BB133111EB
    return x ^ (x >> 31)


cdef inline uint64_t next_random(Table *table) noexcept nogil:
    # splitmix64: a counter, mixed.
    table.random += <uint64_t> 0x9E3779B97F4A7C15
    return mix(table.random)


cdef inline uint32_t random_below(Table *table, uint32_t n) noexcept nogil:
    # 0 .. n - 1, each exactly as likely (Lemire 2019: multiply, reject the remainder).
    cdef uint64_t product = (next_random(table) >> 32) * n
    cdef uint32_t reject
    if <uint32_t> product < n:
        reject = (<uint32_t> 0 - n) % n
        while <uint32_t> product < reject:
            product = (next_random(table) >> 32) * n
    return <uint32_t> (product >> 32)


cdef inline double random_unit(Table *table) noexcept nogil:
    # [0, 1) in steps of 2**-53.
    return <double> (next_random(table) >> 11) * (1.0 / 9007199254740992.0)


# --- memory ---------------------------------------------------------------------------

cdef inline bint _resize(void **array, size_t items, size_t size) noexcept nogil:
    cdef void *grown = realloc(array[0], items * size)
    if grown == NULL:
        return False
    array[0] = grown
    return True


cdef inline bint reserve_members(Group *group, int32_t members) noexcept nogil:
    # Room for so many members, so that making one available never allocates.
    cdef int32_t room = group.room if group.room else 4
    if members <= group.room:
        return True
    while room < members:
        room *= 2
    if not (
        _resize(<void **> &group.order, room, sizeof(int32_t))
        and _resize(<void **> &group.ring, room, sizeof(int32_t))
        and _resize(<void **> &group.seeds, room, sizeof(uint32_t))
    ):
        return False
    group.room = room
    return True


cdef inline bint reserve_levels(Group *group, int32_t load) noexcept nogil:
    # A bucket for this load. There is no last, open bucket: a load is never clipped.
    cdef int32_t levels = group.levels if group.levels else 8
    cdef int32_t level
    if load < group.levels:
        return True
    while levels <= load:
        levels *= 2
    if not _resize(<void **> &group.start, levels + 1, sizeof(int32_t)):
        return False
    if group.levels == 0:
        group.start[0] = 0
    for level in range(group.levels + 1, levels + 1):
        group.start[level] = group.count
    group.levels = levels
    return True


cdef inline void release_memory(Group *group) noexcept nogil:
    free(group.order)
    free(group.ring)
    free(group.seeds)
    free(group.start)
    group.order = group.ring = group.start = NULL
    group.seeds = NULL
    group.room = group.levels = group.count = 0


# --- the permutation ------------------------------------------------------------------

cdef inline int32_t ring_after(const Group *group, int32_t slot) noexcept nogil:
    # Index of the first member of the ring with a higher number.
    cdef int32_t low = 0, high = group.count, middle
    while low < high:
        middle = (low + high) >> 1
        if group.ring[middle] <= slot:
            low = middle + 1
        else:
            high = middle
    return low


cdef inline int32_t below_limit(const Group *group) noexcept nogil:
    # How many available members may take one request more: a prefix of the order.
    if group.limit and group.limit < group.levels:
        return group.start[group.limit]
    return group.count


cdef inline void insert(Group *group, Table *table, int32_t slot) noexcept nogil:
    # Room for the member and a bucket for its load were reserved.
    cdef int32_t load = table.load[slot]
    cdef int32_t hole = group.count, level, first, member, index
    for level in range(group.levels - 1, load, -1):
        # Each bucket above gives its first place for one after its last.
        first = group.start[level]
        if first < hole:
            member = group.order[first]
            group.order[hole] = member
            table.place[member] = hole
            hole = first
        group.start[level + 1] += 1
    group.start[load + 1] += 1
    group.order[hole] = slot
    table.place[slot] = hole

    index = ring_after(group, slot)
    memmove(
        &group.ring[index + 1], &group.ring[index],
        <size_t> (group.count - index) * sizeof(int32_t),
    )
    memmove(
        &group.seeds[index + 1], &group.seeds[index],
        <size_t> (group.count - index) * sizeof(uint32_t),
    )
    group.ring[index] = slot
    group.seeds[index] = <uint32_t> (table.identity[slot] >> 32)

    if group.count == 0 or load < group.least:
        group.least = load
    group.count += 1
    group.total += load


cdef inline void remove(Group *group, Table *table, int32_t slot) noexcept nogil:
    cdef int32_t load = table.load[slot]
    cdef int32_t hole = table.place[slot], level, last, member, index
    for level in range(load, group.levels):
        # Each bucket from its own up gives its last place for the one that is free.
        group.start[level + 1] -= 1
        last = group.start[level + 1]
        if last > hole:
            member = group.order[last]
            group.order[hole] = member
            table.place[member] = hole
            hole = last
    table.place[slot] = -1

    group.count -= 1
    index = ring_after(group, slot - 1)
    memmove(
        &group.ring[index], &group.ring[index + 1],
        <size_t> (group.count - index) * sizeof(int32_t),
    )
    memmove(
        &group.seeds[index], &group.seeds[index + 1],
        <size_t> (group.count - index) * sizeof(uint32_t),
    )
    group.total -= load
    if group.count:
        while group.start[group.least + 1] == 0:
            group.least += 1


cdef inline void count_up(Group *group, Table *table, int32_t slot) noexcept nogil:
    # A bucket for the next load was reserved.
    cdef int32_t load = table.load[slot]
    cdef int32_t place = table.place[slot]
    cdef int32_t last = group.start[load + 1] - 1
    cdef int32_t member = group.order[last]
    group.order[place] = member
    table.place[member] = place
    group.order[last] = slot
    table.place[slot] = last
    group.start[load + 1] = last
    if last == 0:
        group.least = load + 1
    group.total += 1
    table.load[slot] = load + 1


cdef inline void count_down(Group *group, Table *table, int32_t slot) noexcept nogil:
    cdef int32_t load = table.load[slot]
    cdef int32_t place = table.place[slot]
    cdef int32_t first = group.start[load]
    cdef int32_t member = group.order[first]
    group.order[place] = member
    table.place[member] = place
    group.order[first] = slot
    table.place[slot] = first
    group.start[load] = first + 1
    if load - 1 < group.least:
        group.least = load - 1
    group.total -= 1
    table.load[slot] = load - 1
