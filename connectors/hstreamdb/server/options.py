"""Switches of a cluster: its size, behaviour that the protocol leaves open, and faults on request."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from silverfold.connectors.hstreamdb.server.store.store import StoreLimits

DEFAULT_PORT = 6570


class DescribeLayout(StrEnum):
    """The layout of the answer to DescribeCluster."""

    NEW = "new"
    """From server 0.15.2 on."""
    OLD = "old"
    """Up to server 0.15.1: the Go client 0.3.2 needs it."""


class RebuiltWindow(StrEnum):
    """The lower bound of the acknowledged records when a context is built again."""

    AS_PUBLISHED = "as_published"
    """The subscription's start: no checkpoint moves any more."""
    FROM_CHECKPOINT = "from_checkpoint"
    """The record after the stored checkpoint."""


@dataclass(frozen=True)
class Ticks:
    """Lengths of a context's waits, in seconds."""

    start_delay: float = 0.01
    resend: float = 0.1
    assign: float = 1.0
    read_wait: float = 1.0


@dataclass(frozen=True)
class Fault:
    """Calls of a method that fail or are late.

    Args:
        method: Name of the method.
        calls: Which of its calls, counted from 1 over all nodes.
        grpc_code: Name of the code they end with, before anything is done; None to answer them.
        text: Text of the status.
        delay: Seconds before that.
    """

    method: str
    calls: Container[int]
    grpc_code: str | None = "UNAVAILABLE"
    text: str = ""
    delay: float = 0.0


@dataclass(frozen=True)
class ServerTls:
    """Files of a node's TLS, all PEM; with an authority, clients need a certificate of it."""

    certificate: Path
    key: Path
    client_authority: Path | None = None


@dataclass(frozen=True)
class ClusterOptions:
    """Switches of a cluster. Frames and requests are counted from 1, per fetch.

    Args:
        nodes: Number of nodes.
        port: Port of the first node, the others follow; 0 for any free ones.
        host: Address to listen on.
        advertised_host: Host that clients are sent to; None for ``host``.
        describe_layout: Layout of the description of the cluster.
        rebuilt_window: Lower bound of the acknowledged records after a restart.
        member_delay: Seconds for which lookups name a node that died.
        tokens: Tokens that let in, base64 of ``user:password``; none lets everybody in.
        tls: Encryption; None for none.
        limits: Bounds of the memory that clients can make the cluster take.
        ticks: Lengths of waits.
        frame_buffer: Frames queued per fetch; when it is full, delivery to all consumers waits.
        json_statuses: Whether texts of errors are objects, as from server 0.15.0 on.
        faults: Calls that fail or are late.
        cut_after_frames: Frames after which a fetch ends as if its connection broke.
        stall_after_frames: Frames after which a fetch writes no more.
        inserted_frames: Bytes to send as frames, before the frame of that number.
        dropped_acks: Requests of a fetch whose acknowledgements are ignored; the first one opens it.
        clock: Returns the seconds since 1970.
    """

    nodes: int = 3
    port: int = 0
    host: str = "127.0.0.1"
    advertised_host: str | None = None
    describe_layout: DescribeLayout = DescribeLayout.NEW
    rebuilt_window: RebuiltWindow = RebuiltWindow.AS_PUBLISHED
    member_delay: float = 0.0
    tokens: Sequence[str] = ()
    tls: ServerTls | None = None
    limits: StoreLimits = field(default_factory=StoreLimits)
    ticks: Ticks = field(default_factory=Ticks)
    frame_buffer: int = 64
    json_statuses: bool = True
    faults: Sequence[Fault] = ()
    cut_after_frames: int | None = None
    stall_after_frames: int | None = None
    inserted_frames: Mapping[int, bytes] = field(default_factory=dict)
    dropped_acks: Container[int] = ()
    clock: Callable[[], float] = time.time
