"""The two HTTP/1.1 ends, compiled. They know bytes and transports, nothing of ours."""
