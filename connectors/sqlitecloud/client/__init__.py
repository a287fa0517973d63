"""A client for asyncio: its two connections, their settings and addresses."""
