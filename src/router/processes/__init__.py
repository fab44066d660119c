"""SEVERAL PROCESSES that serve as one router: what they share, what they tell.

One control process has the registry; it gives each data process its part of the memory
they share, a listening socket of its own, and the index as a stream of changes.
Nothing here builds a router, and nothing here knows HTTP.
"""
