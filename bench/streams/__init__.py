"""Thousands of open streams through one router: memory, CPU per chunk, liveness."""
