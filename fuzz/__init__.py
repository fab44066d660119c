"""Fuzzing by hand: `make fuzz`."""
