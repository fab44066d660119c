"""The policies: which slot of a pool a request gets.

Owns the choice and nothing else: every function reads groups, loads and bits, and
answers a slot number, its group noted in the choice, or -1; who counts the request on
the slot is `_core.Pool`. Knows no Python object and takes no memory.

A choice is made over whole groups first, which costs nothing per worker. Only when it
falls on a slot that this request must not get (tried before, not of this pool, full,
over the bound) are the groups filtered, member by member, and the choice made again.
"""

from libc.math cimport INFINITY, log
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from router._group cimport (
    Group, Table, below_limit, mix, random_below, random_unit, ring_after
)
from router._rendezvous cimport BLOCK, hash_block, hash_one


cdef struct Part:
    # One group of a pool. `credit` and `last` are the pool's rotation state.
    Group *group
    double credit           # smooth weighted rotation between the groups
    int32_t last            # the slot that had the last turn; -1: none yet
    # What the running choice may take, written by `gather`.
    const int32_t *members  # by load
    int32_t count
    int32_t tied            # leading members that share the lowest load
    double score            # least_load: that of the leading ones


cdef struct Request:
    # What the running choice is for.
    int32_t provider        # 0: any
    bint filtered           # members hold only slots this request may get
    uint64_t key            # consistent_hash: the session
    double factor           # consistent_hash: 0 for no bound
    double absolute


cdef struct Choice:
    Table *table
    Part *parts             # by tier, highest first
    int32_t part_count
    int32_t first           # the parts of the tier that serves: first .. end - 1
    int32_t end
    const uint64_t *words   # candidates, bit words
    int32_t word_count
    Request request
    Group *group            # of the slot that was chosen


ctypedef int32_t (*Policy)(Choice *choice) noexcept nogil


cdef inline bint permitted(const Choice *choice, int32_t slot) noexcept nogil:
    # A candidate that the request has not tried.
    cdef int32_t word = slot >> 6
    if word >= choice.word_count:
        return False
    return (
        (choice.words[word] & ~choice.table.excluded[word]) >> (slot & 63)
    ) & 1


cdef inline void _filter(Choice *choice, Part *part, int32_t *room) noexcept nogil:
    # Keep the order and the permitted.
    cdef const int32_t *load = choice.table.load
    cdef int32_t i, slot, kept = 0, tied = 0
    for i in range(part.count):
        slot = part.members[i]
        if permitted(choice, slot):
            room[kept] = slot
            tied += load[slot] == load[room[0]]
            kept += 1
    part.members = room
    part.count = kept
    part.tied = tied


cdef inline int32_t gather(Choice *choice, bint filtered) noexcept nogil:
    # Set out what the highest tier with anyone eligible has; how many those are.
    cdef Part *part
    cdef Group *group
    cdef int32_t i = 0, found = 0, tier, provider = choice.request.provider
    choice.request.filtered = filtered
    while i < choice.part_count and found == 0:
        choice.first = i
        tier = choice.parts[i].group.tier
        while i < choice.part_count and choice.parts[i].group.tier == tier:
            part = &choice.parts[i]
            group = part.group
            i += 1
            part.count = 0
            if group.count == 0 or (provider and group.provider != provider):
                continue
            part.count = below_limit(group)
            part.members = group.order
            part.tied = group.start[group.least + 1]
            if filtered:
                _filter(choice, part, choice.table.scratch + found)
            found += part.count
    choice.end = i
    return found


cdef inline int32_t choose(Choice *choice, Policy policy) noexcept nogil:
    cdef int32_t slot
    if gather(choice, False) == 0:
        return -1
    slot = policy(choice)
    if slot >= 0 and permitted(choice, slot):
        return slot
    if gather(choice, True) == 0:
        return -1
    return policy(choice)


cdef inline int32_t _give(Choice *choice, Part *part, int32_t index) noexcept nogil:
    choice.group = part.group
    return part.members[index]


# --- least_load -----------------------------------------------------------------------

cdef inline double _score(
    const Choice *choice, const Part *part, int32_t slot
) noexcept nogil:
    # What the load per capacity would be with the request.
    return (choice.table.load[slot] + 1) / part.group.weight


cdef inline int32_t least_load(Choice *choice) noexcept nogil:
    # Lowest score; every worker that shares it is as likely as any other.
    cdef Part *part = &choice.parts[choice.first]
    cdef double best = INFINITY
    cdef int32_t i, nth, ties = 0
    if choice.end - choice.first == 1:      # as most often: nothing to compare
        return _give(choice, part, random_below(choice.table, part.tied))
    for i in range(choice.first, choice.end):
        part = &choice.parts[i]
        if part.count:
            part.score = _score(choice, part, part.members[0])
            if part.score < best:
                best = part.score
                ties = 0
            if part.score == best:
                ties += part.tied
    nth = random_below(choice.table, ties)
    for i in range(choice.first, choice.end):
        part = &choice.parts[i]
        if part.count and part.score == best:
            if nth < part.tied:
                return _give(choice, part, nth)
            nth -= part.tied
    return -1


# --- random and power_of_two ----------------------------------------------------------

cdef inline double _capacity(const Choice *choice) noexcept nogil:
    cdef double total = 0
    cdef int32_t i
    for i in range(choice.first, choice.end):
        total += choice.parts[i].group.weight * choice.parts[i].count
    return total


cdef inline int32_t _draw(
    Choice *choice, double capacity, Part *but_of, int32_t but, Part **drawn
) noexcept nogil:
    # Index of a member drawn in proportion to weight, other than `but` of `but_of`.
    cdef double at = random_unit(choice.table) * capacity, share
    cdef Part *part
    cdef int32_t i, count, index = -1
    for i in range(choice.first, choice.end):
        part = &choice.parts[i]
        count = part.count - (part == but_of)
        if count <= 0:
            continue
        drawn[0] = part
        share = part.group.weight * count
        if at < share:
            index = <int32_t> (at / part.group.weight)
            if index >= count:
                index = count - 1
            break
        at -= share
        index = count - 1   # the last one, should rounding carry past the end
    if drawn[0] == but_of and index >= but:
        index += 1
    return index


cdef inline int32_t random(Choice *choice) noexcept nogil:
    cdef Part *part = NULL
    cdef int32_t index = _draw(choice, _capacity(choice), NULL, -1, &part)
    return _give(choice, part, index)


cdef inline int32_t power_of_two(Choice *choice) noexcept nogil:
    # The less loaded of two that differ; the first if there is no other, or a tie.
    cdef Part *one = NULL
    cdef Part *two = NULL
    cdef double capacity = _capacity(choice)
    cdef int32_t first = _draw(choice, capacity, NULL, -1, &one)
    cdef int32_t second = _draw(
        choice, capacity - one.group.weight, one, first, &two
    )
    if second >= 0 and (
        _score(choice, two, two.members[second])
        < _score(choice, one, one.members[first])
    ):
        return _give(choice, two, second)
    return _give(choice, one, first)


# --- round_robin ----------------------------------------------------------------------

cdef inline bint _full(
    const Choice *choice, const Group *group, int32_t slot
) noexcept nogil:
    return group.limit and choice.table.load[slot] >= group.limit


cdef inline int32_t _next_turn(const Choice *choice, const Part *part) noexcept nogil:
    # The next in the ring that may be given: the ring also holds full ones.
    cdef const Group *group = part.group
    cdef int32_t at = ring_after(group, part.last), slot
    for _ in range(group.count):
        if at >= group.count:
            at = 0
        slot = group.ring[at]
        if not _full(choice, group, slot) and permitted(choice, slot):
            return slot
        at += 1
    return -1


cdef inline int32_t round_robin(Choice *choice) noexcept nogil:
    # Smooth weighted rotation between the groups (as nginx does between peers), each
    # with the capacity it has now, and plain rotation inside one.
    cdef Part *part
    cdef Part *best = NULL
    cdef double share, total = 0
    cdef int32_t i, slot
    for i in range(choice.first, choice.end):
        part = &choice.parts[i]
        if part.count:
            share = part.group.weight * part.count
            total += share
            if best == NULL or (
                part.credit + share > best.credit + best.group.weight * best.count
            ):
                best = part
    slot = _next_turn(choice, best)
    if slot >= 0:
        for i in range(choice.first, choice.end):
            part = &choice.parts[i]
            part.credit += part.group.weight * part.count
        best.credit -= total
        best.last = slot
        choice.group = best.group
    return slot


# --- consistent_hash ------------------------------------------------------------------

cdef struct Bid:
    # A worker's standing in a key's own order of workers.
    int32_t slot            # -1: none yet
    uint32_t hash
    Group *group


cdef inline double _value(const Bid *bid) noexcept nogil:
    # Weighted rendezvous (Schindler and Schomaker 2005): -w / ln(u).
    return -bid.group.weight / log((bid.hash + 0.5) * (1.0 / 4294967296.0))


cdef inline bint _beats(
    const Choice *choice, const Bid *a, const Bid *b
) noexcept nogil:
    # Whether a comes before b in the key's order. Hashes of 32 bits tie now and then:
    # a second hash of all 64 decides, so that the order is the same everywhere.
    cdef uint64_t one, two
    cdef double value, other
    if b.slot < 0:
        return True
    if a.group.weight == b.group.weight:
        if a.hash != b.hash:
            return a.hash > b.hash
    else:
        value = _value(a)
        other = _value(b)
        if value != other:
            return value > other
    one = choice.table.identity[a.slot]
    two = choice.table.identity[b.slot]
    return mix(one ^ choice.request.key) > mix(two ^ choice.request.key)


cdef inline void _offer(Choice *choice, Bid *best, Bid *bid) noexcept nogil:
    if _beats(choice, bid, best):
        best[0] = bid[0]


cdef inline double _mean(const Choice *choice) noexcept nogil:
    # Mean load per unit of weight, over all that are available in the tier.
    cdef const Group *group
    cdef double capacity = 0
    cdef int64_t total = 0
    cdef int32_t i, provider = choice.request.provider
    for i in range(choice.first, choice.end):
        group = choice.parts[i].group
        if provider == 0 or group.provider == provider:
            capacity += group.weight * group.count
            total += group.total
    return total / capacity


cdef inline bint _over(
    const Choice *choice, double mean, const Bid *bid
) noexcept nogil:
    # Above the bound: both far above the mean and by enough requests to matter.
    cdef double load = choice.table.load[bid.slot], fair = mean * bid.group.weight
    return (
        choice.request.factor > 0
        and load > choice.request.factor * fair
        and load - fair >= choice.request.absolute
    )


cdef inline Bid _first_of(Choice *choice, const Part *part) noexcept nogil:
    # The first in the key's order among all that are available in a group.
    cdef Group *group = part.group
    cdef uint64_t key = choice.request.key
    cdef uint32_t hashes[BLOCK]
    cdef uint32_t highest
    cdef Bid best, bid
    cdef int32_t i = 0, j
    bid.group = best.group = group
    best.slot = -1
    best.hash = 0
    while i + BLOCK <= group.count:
        highest = hash_block(&group.seeds[i], key, hashes)
        if highest >= best.hash:
            bid.hash = highest
            for j in range(BLOCK):
                if hashes[j] == highest:
                    bid.slot = group.ring[i + j]
                    _offer(choice, &best, &bid)
        i += BLOCK
    for i in range(i, group.count):
        bid.hash = hash_one(group.seeds[i], key)
        if bid.hash >= best.hash:
            bid.slot = group.ring[i]
            _offer(choice, &best, &bid)
    return best


cdef inline int32_t consistent_hash(Choice *choice) noexcept nogil:
    # Rendezvous hashing (Thaler and Ravishankar 1998) with bounded loads: the first in
    # the key's order that is not over the bound; the first of all when every one is.
    cdef const Part *part
    cdef Bid best, within, bid
    cdef int32_t i, j
    cdef double mean = _mean(choice)
    best.slot = within.slot = -1
    best.group = within.group = NULL
    for i in range(choice.first, choice.end):
        part = &choice.parts[i]
        if part.count == 0:
            continue
        if not choice.request.filtered:
            bid = _first_of(choice, part)
            _offer(choice, &best, &bid)
            continue
        bid.group = part.group
        for j in range(part.count):
            bid.slot = part.members[j]
            bid.hash = hash_one(
                <uint32_t> (choice.table.identity[bid.slot] >> 32), choice.request.key
            )
            _offer(choice, &best, &bid)
            if not _over(choice, mean, &bid):
                _offer(choice, &within, &bid)
    if within.slot >= 0:
        best = within
    elif not choice.request.filtered and (
        _full(choice, best.group, best.slot) or _over(choice, mean, &best)
    ):
        return -1
    choice.group = best.group
    return best.slot
