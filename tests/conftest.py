"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

# A machine that is busy must not fail a property.
settings.register_profile("ours", deadline=None)
settings.load_profile("ours")
