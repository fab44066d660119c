"""Benchmarks: what is claimed of speed is measured here."""
