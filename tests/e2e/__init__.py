"""The whole of it: real `router serve` processes in front of simulated workers."""
