"""Serves the calls of a node: counts them, checks their token, and turns refusals into statuses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
import structlog

from silverfold.connectors.hstreamdb.protocol import methods
from silverfold.connectors.hstreamdb.protocol.methods import SERVICE, Method
from silverfold.connectors.hstreamdb.server.calls import clusters, fetch, readers, streams, subscriptions, trims
from silverfold.connectors.hstreamdb.server.node import Node
from silverfold.connectors.hstreamdb.server.refusals import Refusal

_log = structlog.get_logger("hstreamdb.server")

_UNARY: Final[dict[Method[Any, Any], Callable[[Node, Any], Awaitable[Any]]]] = {
    **clusters.CALLS,
    **streams.CALLS,
    **trims.CALLS,
    **subscriptions.CALLS,
    **readers.CALLS,
}
_STREAMS: Final[dict[Method[Any, Any], Callable[[Node, Any], Awaitable[None]]]] = {
    methods.STREAMING_FETCH: fetch.streaming_fetch,
    **readers.STREAMS,
}
"""Calls that read their requests and write their answers themselves."""


def handlers(node: Node) -> Any:
    """Return the generic handler of a node's calls."""
    found = {method.name: _unary(node, method, answer) for method, answer in _UNARY.items()}
    found |= {method.name: _stream(node, method, serve) for method, serve in _STREAMS.items()}
    return grpc.method_handlers_generic_handler(SERVICE, found)


def _unary(node: Node, method: Method[Any, Any], answer: Callable[[Node, Any], Awaitable[Any]]) -> Any:
    async def serve(request: Any, call: Any) -> Any:
        async with _guarded(node, method, call):
            return await answer(node, request)

    return grpc.unary_unary_rpc_method_handler(
        serve, request_deserializer=method.request.FromString, response_serializer=_serialize
    )


def _stream(node: Node, method: Method[Any, Any], work: Callable[[Node, Any], Awaitable[None]]) -> Any:
    async def serve(_requests: Any, call: Any) -> None:
        async with _guarded(node, method, call):
            await work(node, call)

    return grpc.stream_stream_rpc_method_handler(
        serve, request_deserializer=method.request.FromString, response_serializer=_serialize
    )


def _serialize(answer: Any) -> bytes:
    """Return the bytes of an answer; frames are bytes already."""
    return answer if isinstance(answer, bytes) else answer.SerializeToString()


@asynccontextmanager
async def _guarded(node: Node, method: Method[Any, Any], call: Any) -> AsyncIterator[None]:
    try:
        await node.faults.meet(method.name)
        _check_token(node, call)
        yield
    except Refusal as refusal:
        text = refusal.text(as_json=node.options.json_statuses)
        await call.abort(grpc.StatusCode[refusal.grpc_code], text)
    except Exception as error:
        _log.exception("call_failed", method=method.name)
        await call.abort(grpc.StatusCode.UNKNOWN, f"UnKnown exception: {error!r}")


def _check_token(node: Node, call: Any) -> None:
    if not node.options.tokens:
        return
    given = dict(call.invocation_metadata()).get("authorization")
    if given is not None and given in [f"Basic {token}" for token in node.options.tokens]:
        return
    if node.options.tls is None:
        raise Refusal("CANCELLED", "")
    raise Refusal("UNAUTHENTICATED", "No auth metadata found" if given is None else f"Invalid token: {given}")
