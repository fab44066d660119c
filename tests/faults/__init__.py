"""Faults of the network between router and workers, at random."""
