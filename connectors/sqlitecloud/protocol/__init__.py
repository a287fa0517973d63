"""SCSP without a socket: frames to messages, and the notifications that land."""
