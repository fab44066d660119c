"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

# A machine that is busy must not fail a property.
settings.register_profile("ours", deadline=None)
# By hand: --hypothesis-profile long
settings.register_profile("long", deadline=None, max_examples=3_000)
settings.load_profile("ours")
