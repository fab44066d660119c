"""HOW a worker is chosen: route key -> policy -> slot, thin over the core."""
