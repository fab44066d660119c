"""Tests of the router's edges: settings, command line, admin API, metrics, logs."""
