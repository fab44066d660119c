"""Input that means harm, over real sockets, and what must not come of it."""
