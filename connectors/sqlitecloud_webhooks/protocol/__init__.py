"""Posts without a socket: what is accepted, and what their bodies hold."""
