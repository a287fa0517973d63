"""Nodes that store appends, hold them back, or fail some of them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import grpc

from silverfold.connectors.hstreamdb.protocol.messages.batches import AppendRequest, AppendResponse
from tests.support.hstreamdb.scripted_node import ScriptedNode


def sent(node: ScriptedNode) -> list[list[bytes]]:
    """Payloads of each append, in order."""
    return [payloads for _, payloads in node.appended]


class Gate:
    """Appends that are answered once the gate is open; counts those under way."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.under_way: defaultdict[int, int] = defaultdict(int)
        self.most_under_way = 0
        self.node: ScriptedNode

    async def append(self, request: AppendRequest, _context: Any) -> AppendResponse:
        self.under_way[request.shard_id] += 1
        self.most_under_way = max(self.most_under_way, *self.under_way.values())
        await self.open.wait()
        self.under_way[request.shard_id] -= 1
        return self.node.append(request)


class FailingFirst:
    """Appends that fail so often, then are stored."""

    def __init__(self, times: int, code: str, text: str = "") -> None:
        self._left, self._code, self._text = times, grpc.StatusCode[code], text
        self.node: ScriptedNode

    async def __call__(self, request: AppendRequest, context: Any) -> AppendResponse:
        self._left -= 1
        if self._left >= 0:
            await context.abort(self._code, self._text)
        return self.node.append(request)
