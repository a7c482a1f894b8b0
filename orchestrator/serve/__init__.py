"""Pages over HTTP: read-only, on loopback unless a token is asked for."""
