"""Routers side by side on one two-core machine: see README.md beside this file."""
