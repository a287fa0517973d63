"""A bare gRPC client of one node: single calls, and a fetch whose frames are taken one by one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any, Self

import grpc
import pytest
from google.protobuf.message import Message

from silverfold.connectors.hstreamdb.protocol import methods as m
from silverfold.connectors.hstreamdb.protocol.messages.batches import BatchedRecord, StreamingFetchRequest
from silverfold.connectors.hstreamdb.protocol.messages.offsets import SpecialOffset
from silverfold.connectors.hstreamdb.protocol.methods import Answer, Method, Request
from silverfold.connectors.hstreamdb.protocol.records import RecordId
from silverfold.connectors.hstreamdb.protocol.status import Status
from silverfold.connectors.hstreamdb.server.options import ClusterOptions, Ticks
from silverfold.connectors.hstreamdb.server.server import HStreamServer
from tests.support.hstreamdb.batches import numbers_in

QUICK = Ticks(start_delay=0.001, resend=0.02, assign=0.03, read_wait=0.05)
SECONDS = 10.0
"""Longest wait of a test."""


class Refused(Exception):
    def __init__(self, error: grpc.RpcError) -> None:
        super().__init__(error.code().name, error.details())
        self.status = Status(error.code().name, error.details())


class Fetch:
    """An open fetch; a thread takes its frames as they come."""

    def __init__(self, channel: Any, subscription: str, consumer: str, *, metadata: Any = None) -> None:
        self._subscription, self._consumer = subscription, consumer
        self._requests = SimpleQueue[StreamingFetchRequest | None]()
        self._frames = SimpleQueue[bytes | None]()
        self.ack([])
        fetch = channel.stream_stream(
            m.STREAMING_FETCH.path,
            request_serializer=StreamingFetchRequest.SerializeToString,
            response_deserializer=bytes,
        )
        self._call = fetch(iter(self._requests.get, None), metadata=metadata)
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()

    def ack(self, ids: Iterable[RecordId]) -> None:
        request = StreamingFetchRequest(subscription_id=self._subscription, consumer_name=self._consumer)
        request.ack_ids.extend([each.to_message() for each in ids])
        self._requests.put(request)

    def frame(self, seconds: float = SECONDS) -> bytes:
        frame = self._frames.get(timeout=seconds)
        assert frame is not None, self.status
        return frame

    def numbers(self, count: int, *, ack: bool = False) -> dict[RecordId, int]:
        """Take frames until there are so many records, each counted once."""
        found: dict[RecordId, int] = {}
        while len(found) < count:
            records = numbers_in(self.frame())
            found |= records
            if ack:
                self.ack(records)
        return found

    def is_quiet(self, seconds: float) -> bool:
        try:
            return self._frames.get(timeout=seconds) is None
        except Empty:
            return True

    def half_close(self) -> None:
        self._requests.put(None)

    def cancel(self) -> None:
        self._call.cancel()
        self._requests.put(None)
        self._thread.join(SECONDS)

    @property
    def status(self) -> Status:
        """How the call ended; waits for it."""
        self._thread.join(SECONDS)
        return Status(self._call.code().name, self._call.details())

    def _take(self) -> None:
        try:
            for frame in self._call:
                self._frames.put(frame)
        except grpc.RpcError:
            pass
        self._frames.put(None)
        self._requests.put(None)


class Peer:
    """A client of all nodes of a cluster; calls go to the first unless another is named."""

    def __init__(self, cluster: HStreamServer, credentials: Any = None, metadata: Any = None) -> None:
        self._cluster, self._metadata = cluster, metadata
        self._channels = [
            grpc.insecure_channel(f"127.0.0.1:{port}")
            if credentials is None
            else grpc.secure_channel(f"localhost:{port}", credentials)
            for port in cluster.ports
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._channels:
            each.close()

    def call(self, method: Method[Request, Answer], request: Message | None = None, *, node: int = 1) -> Any:
        call = self._channels[node - 1].unary_unary(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.answer.FromString,
        )
        try:
            return call(request or method.request(), timeout=SECONDS, metadata=self._metadata, wait_for_ready=True)
        except grpc.RpcError as error:
            raise Refused(error) from None

    def stream(self, method: Method[Request, Answer], *requests: Message) -> Iterator[Any]:
        call = self._channels[0].stream_stream(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.answer.FromString,
        )
        try:
            yield from call(iter(requests), timeout=SECONDS)
        except grpc.RpcError as error:
            raise Refused(error) from None

    def create_stream(self, name: str = "s", shards: int = 1, retention: int = 0) -> list[int]:
        """Create a stream; return its shards."""
        self.call(
            m.CREATE_STREAM,
            m.Stream(stream_name=name, replication_factor=1, shard_count=shards, backlog_duration=retention),
        )
        return [each.shard_id for each in self.call(m.LIST_SHARDS, m.ListShardsRequest(stream_name=name)).shards]

    def append(self, shard: int, batch: BatchedRecord, stream: str = "s") -> list[RecordId]:
        request = m.AppendRequest(stream_name=stream, shard_id=shard, records=batch)
        return [RecordId.of(each) for each in self.call(m.APPEND, request).record_ids]

    def subscribe(
        self,
        name: str = "sub",
        *,
        stream: str = "s",
        timeout: int = 60,
        limit: int = 1000,
        offset: SpecialOffset = SpecialOffset.EARLIEST,
    ) -> None:
        subscription = m.Subscription(
            subscription_id=name,
            stream_name=stream,
            ack_timeout_seconds=timeout,
            max_unacked_records=limit,
            offset=offset,
        )
        self.call(m.CREATE_SUBSCRIPTION, subscription)

    @contextmanager
    def fetch(self, consumer: str = "c", *, subscription: str = "sub", node: int | None = None) -> Iterator[Fetch]:
        number = node or self._cluster.owner(subscription)
        fetch = Fetch(self._channels[number - 1], subscription, consumer, metadata=self._metadata)
        try:
            yield fetch
        finally:
            fetch.cancel()

    def checkpoints(self, subscription: str = "sub") -> dict[int, int]:
        owner = self._cluster.owner(subscription)
        found = self.call(m.GET_SUBSCRIPTION, m.GetSubscriptionRequest(id=subscription), node=owner)
        return {each.shard_id: each.batch_id for each in found.offsets}


@contextmanager
def serving(**switches: Any) -> Iterator[tuple[HStreamServer, Peer]]:
    """Yield a cluster with short waits, and a client."""
    with HStreamServer.start(ClusterOptions(**{"ticks": QUICK, **switches})) as cluster, Peer(cluster) as peer:
        yield cluster, peer


def refusal(call: Callable[[], Any]) -> tuple[str, Any, Any, Any]:
    """Return the status of a call that must fail: code, number, name and extra."""
    with pytest.raises(Refused) as caught:
        call()
    status = caught.value.status
    details = status.details or {"error": None, "message": status.text, "extra": None}
    return status.grpc_code, details["error"], details["message"], details["extra"]


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)
