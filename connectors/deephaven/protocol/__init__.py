"""The transport without a socket: bytes to messages to events, and the state of a session."""
