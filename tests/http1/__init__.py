"""The two compiled HTTP/1.1 ends, before everything that uses them."""
