"""What a request costs inside the router's process: no sockets, no kernel."""
