"""HStreamDB: a stream store over gRPC. ``PROTOCOL.md`` has the wire, and what we decided."""
