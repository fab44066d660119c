"""Tests of the project's own files: what may import what, and what the docs promise."""
