"""A fleet of simulated vLLM workers: `router simulate`, `router demo`, the tests."""
