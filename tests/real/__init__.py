"""The router before real vLLM servers: `make real`, not part of `make test`."""
