"""What tests of several parts share: raw sockets on both sides, the real process."""
