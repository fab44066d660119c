# Included by _core.pyx after Slots: one unit to the compiler, two to a reader.
#
# Owns pools: a pool's candidates and groups, whose turn it is in the rotation, and the
# door of every pick. How a slot is chosen is in _policies.pxd.

@cython.final
@cython.no_gc_clear
cdef class Pool:
    """What one model can be served by."""

    cdef Slots slots
    cdef Choice choice
    cdef list groups        # _Group, beside the parts of the choice
    cdef uint64_t scope
    cdef int32_t size
    cdef readonly object candidates

    def __cinit__(
        self, Slots slots not None, candidates, groups, seed=0, Pool previous=None
    ):
        self.scope = mix(PyLong_AsUnsignedLongLongMask(seed))
        self.slots = slots
        self.choice.table = &slots.table
        self._take_candidates(candidates)
        self._take_groups(groups, previous)

    def __dealloc__(self):
        free(self.choice.parts)

    cdef int _take_candidates(self, candidates) except -1:
        cdef const uint64_t[::1] words
        cdef Py_ssize_t count, word
        array = np.array(candidates)    # a copy
        if array.dtype != np.uint64 or array.ndim != 1:
            raise TypeError("candidates must be a uint64 array of one dimension")
        array.flags.writeable = False
        words = array
        count = array.shape[0]
        while count and words[count - 1] == 0:
            count -= 1
        self.candidates = array[:count]
        if count == 0:
            return 0
        if len(self.slots.living) < 64 * count - __builtin_clzll(words[count - 1]):
            raise ValueError("candidates that are not slots")
        self.choice.words = &words[0]   # kept by the array
        self.choice.word_count = <int32_t> count
        for word in range(count):
            self.size += __builtin_popcountll(words[word])
        return 0

    cdef int _take_groups(self, groups, Pool previous) except -1:
        # A pool may have as many groups as the fleet has workers, and is made anew
        # whenever one of them changes: no Python object is made for a group.
        cdef int32_t i = 0, tier = INT32_MAX
        cdef bint ordered = True
        cdef _Group group
        self.groups = [self.slots._group(number) for number in groups]
        self.slots.mark += 1
        for group in self.groups:
            if group.mark == self.slots.mark:
                raise ValueError("a group is named twice")
            group.mark = self.slots.mark
            ordered = ordered and group.state.tier <= tier
            tier = group.state.tier
        if not ordered:
            self.groups.sort(key=_by_tier)
        self.choice.parts = <Part *> calloc(len(self.groups) + 1, sizeof(Part))
        if self.choice.parts == NULL:
            raise MemoryError
        for group in self.groups:
            group.position = i
            self.choice.parts[i].group = &group.state
            self.choice.parts[i].last = -1
            i += 1
        self.choice.part_count = i
        if previous is not None:
            self._carry_over(previous)
        return 0

    cdef int _carry_over(self, Pool previous) except -1:
        # The groups of this pool bear its mark, and their position in it.
        cdef int32_t i = 0
        cdef _Group group
        cdef Part *part
        for group in previous.groups:
            if group.mark == self.slots.mark:
                part = &self.choice.parts[group.position]
                part.credit = previous.choice.parts[i].credit
                part.last = previous.choice.parts[i].last
            i += 1
        return 0

    def __len__(self):
        return self.size

    def numbers(self):
        """Slot numbers of the candidates, ascending, int32."""
        cdef int32_t word, count = 0
        cdef uint64_t bits
        cdef int32_t[::1] out
        numbers = np.empty(self.size, np.int32)
        if self.size:
            out = numbers
            for word in range(self.choice.word_count):
                bits = self.choice.words[word]
                while bits:
                    out[count] = 64 * word + __builtin_ctzll(bits)
                    bits &= bits - 1
                    count += 1
        return numbers

    def available(self):
        """How many candidates could take a request now."""
        cdef const Group *group
        cdef int32_t i, j, count = 0
        for i in range(self.choice.part_count):
            group = self.choice.parts[i].group
            for j in range(below_limit(group)):
                count += permitted(&self.choice, group.order[j])
        return count

    def among(self, words):
        """How many candidates are in this set, bit words over the slots."""
        cdef const uint64_t[::1] others = words
        cdef int32_t word, count = 0
        for word in range(min(self.choice.word_count, <int32_t> others.shape[0])):
            count += __builtin_popcountll(self.choice.words[word] & others[word])
        return count

    # --- picks ------------------------------------------------------------------------

    def least_load(self, tuple tried not None=(), int32_t provider=0):
        """The least loaded for its weight; ties uniformly at random."""
        return self._pick(least_load, tried, provider)

    def round_robin(self, tuple tried not None=(), int32_t provider=0):
        """The next in a smooth weighted rotation."""
        return self._pick(round_robin, tried, provider)

    def random(self, tuple tried not None=(), int32_t provider=0):
        """Any, in proportion to weight."""
        return self._pick(random, tried, provider)

    def power_of_two(self, tuple tried not None=(), int32_t provider=0):
        """The less loaded of two at random."""
        return self._pick(power_of_two, tried, provider)

    def consistent_hash(
        self, key, double factor, double absolute,
        tuple tried not None=(), int32_t provider=0,
    ):
        """The first in the key's own order that is not above the bound."""
        if not (factor == 0 or factor >= 1) or not isfinite(factor):
            raise ValueError("factor must be 0 (no bound) or finite and at least 1")
        if not (absolute >= 0 and isfinite(absolute)):
            raise ValueError("absolute must be finite and not negative")
        self.choice.request.key = mix(self.scope ^ PyLong_AsUnsignedLongLongMask(key))
        self.choice.request.factor = factor
        self.choice.request.absolute = absolute
        return self._pick(consistent_hash, tried, provider)

    cdef inline Slot _pick(self, Policy policy, tuple tried, int32_t provider):
        cdef int32_t number
        self.choice.request.provider = provider
        if not tried:
            return self._count(choose(&self.choice, policy))
        self._check_tried(tried)
        self._exclude(tried, True)
        number = choose(&self.choice, policy)
        self._exclude(tried, False)
        return self._count(number)

    cdef int _check_tried(self, tuple tried) except -1:
        for slot in tried:
            if not isinstance(slot, Slot):
                raise TypeError("tried must hold slots")
            self.slots._check(<Slot> slot)
        return 0

    cdef void _exclude(self, tuple tried, bint exclude) noexcept:
        cdef uint64_t bit
        cdef Slot slot
        cdef Py_ssize_t i
        for i in range(len(tried)):
            slot = <Slot> PyTuple_GET_ITEM(tried, i)
            bit = <uint64_t> 1 << (slot.number & 63)
            if not exclude:
                self.choice.table.excluded[slot.number >> 6] &= ~bit
            elif self.slots._lives(slot):
                self.choice.table.excluded[slot.number >> 6] |= bit

    cdef inline Slot _count(self, int32_t number):
        # The group is taken from the choice: the slot itself may be far from the cache.
        cdef Group *group = self.choice.group
        if number < 0:
            return None
        if not reserve_levels(group, self.choice.table.load[number] + 1):
            raise MemoryError
        count_up(group, self.choice.table, number)
        if self.choice.table.own != NULL:
            self.choice.table.own[number] += 1
        return <Slot> PyList_GET_ITEM(self.slots.living, number)


def _by_tier(_Group group):
    return -group.state.tier
