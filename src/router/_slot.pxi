# Included by _core.pyx before Slots.
#
# Owns what a slot and a group are to Python: an object each, made by Slots alone.

@cython.final
@cython.internal
cdef class _Group:
    """Owner of a group's memory. One that was dropped stays empty for ever."""

    cdef Group state
    cdef int32_t number
    cdef int32_t members    # available or not
    cdef uint64_t mark      # of the pool that last took it, and where it stands there
    cdef int32_t position

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
