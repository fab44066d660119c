"""What the benchmarks compute, and that they run; never how fast anything is."""
