"""THE WAY of a request. Read `exchange` first."""
