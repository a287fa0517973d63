"""Counts the calls of each method, and makes some of them fail or late."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable

from silverfold.connectors.hstreamdb.server.options import Fault
from silverfold.connectors.hstreamdb.server.refusals import Refusal


class Faults:
    """The faults of a cluster; more may be added while it runs."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = list(faults)
        self._calls = Counter[str]()

    async def meet(self, method: str) -> None:
        """Count a call. Raises Refusal if it is to fail."""
        self._calls[method] += 1
        for each in self.faults:
            if each.method == method and self._calls[method] in each.calls:
                await asyncio.sleep(each.delay)
                if each.grpc_code is not None:
                    raise Refusal(each.grpc_code, each.text)
