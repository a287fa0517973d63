"""Calls of shard readers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from silverfold.connectors.hstreamdb.protocol.methods import Method
from silverfold.connectors.hstreamdb.server.node import Node

CALLS: Final[dict[Method[Any, Any], Callable[[Node, Any], Awaitable[Any]]]] = {}
STREAMS: Final[dict[Method[Any, Any], Callable[[Node, Any], Awaitable[None]]]] = {}
