"""A client for asyncio, its listeners and the table they keep."""
