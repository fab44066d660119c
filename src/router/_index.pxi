# Included by _core.pyx after Pool.
#
# Owns the one reference that requests read, and the step in which it is replaced.

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
