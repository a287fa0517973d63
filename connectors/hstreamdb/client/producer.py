"""Producer: records of one stream, buffered, batched, and appended in order for each shard or key.

::

    async with client.producer("orders", compression="gzip") as producer:
        record_id = await producer.append({"id": 7}, key="7")     # waits for the server
        future = await producer.submit({"id": 8}, key="8")        # waits only while the buffer is full
        await producer.flush()                                    # all were answered; raises the first error

A batch is appended once the one before it, of the same shard (or key), was answered. So order is kept through retries.
An append whose answer is lost, or takes longer than the connection's ``timeout``, is sent again: its records may then
be in the stream several times, also after an error. If the stream was deleted and
made anew, records without an answer go to its new shards, which are empty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from random import Random
from types import TracebackType
from typing import Final, Literal, NamedTuple, Self, TypeAlias, TypedDict

from silverfold.conf.errors import ConfigError, InvalidValue, LocalProtocolError, SilverfoldError, SourceUnavailable
from silverfold.connectors.hstreamdb.client.channels import MAX_TRIES, may_pass, waits
from silverfold.connectors.hstreamdb.client.cluster import Cluster
from silverfold.connectors.hstreamdb.client.lanes import BatchLimits, Entry, Lane
from silverfold.connectors.hstreamdb.client.shards import ShardMap
from silverfold.connectors.hstreamdb.protocol.frames import (
    MAX_PLAIN_BYTES,
    MAX_STORED_BYTES,
    appended_ids,
    encode_batch,
    encode_entry,
)
from silverfold.connectors.hstreamdb.protocol.messages.batches import AppendRequest, BatchedRecord, CompressionType
from silverfold.connectors.hstreamdb.protocol.methods import APPEND
from silverfold.connectors.hstreamdb.protocol.records import Json, Record, RecordId, to_record
from silverfold.connectors.hstreamdb.protocol.status import Status

Compression: TypeAlias = Literal["gzip", "zstd"] | None

MAX_RECORDS: Final = 100
MAX_BYTES: Final = MAX_STORED_BYTES - 1024
"""Most bytes of a batch before compression, which may add some."""
MOST_BYTES: Final = MAX_PLAIN_BYTES // 2
"""What compresses well may be so large before it: a fetch opens twice that, since each record takes some bytes more."""
MAX_AGE: Final = 0.1
MAX_OUTSTANDING_BYTES: Final = 100 << 20
_COMPRESSIONS: Final = {None: CompressionType.NONE, "gzip": CompressionType.GZIP, "zstd": CompressionType.ZSTD}


class ProducerOptions(TypedDict, total=False):
    """Options of a `Producer`, where they are described."""

    compression: Compression
    buffer_by: Literal["shard", "key"]
    max_records: int
    max_bytes: int
    max_age: float
    max_outstanding_bytes: int
    max_tries: int
    stop_on_error: bool
    lookup: Literal["error", "always"]
    rng: Random


class _Part(NamedTuple):
    """Records of a batch that are appended together, after so many failed tries."""

    shard_id: int
    entries: Sequence[Entry]
    tries: int = 0


class Producer:
    """Appends to one stream. Made by ``Client.producer``; flushed and closed at the end of its ``async with`` block.

    Args:
        compression: Of batches. The official clients for Python and Java do not read zstd.
        buffer_by: ``shard`` has one append in flight for each shard, ``key`` one for each key: smaller batches, but a
            slow key delays no other.
        max_records: Most records in a batch.
        max_bytes: Most bytes in a batch, before compression; at most 32 MiB.
        max_age: Longest wait of a record for others, in seconds; none once the buffer is full. With 0, only records
            behind an append share the next.
        max_outstanding_bytes: Most bytes taken and not answered; `submit` and `append` wait for room.
        max_tries: Most tries of a record while no node can be reached, even if the stream's shards change meanwhile.
        stop_on_error: If an append fails, also fail all records of its shard (or key) taken until then.
        lookup: When the shard's node is looked up: ``always``, before every append, or after an ``error``.
        rng: Spreads the waits between tries.

    Raises:
        ConfigError: An option has another value than these.
    """

    def __init__(
        self,
        stream: str,
        cluster: Cluster,
        *,
        compression: Compression = None,
        buffer_by: Literal["shard", "key"] = "shard",
        max_records: int = MAX_RECORDS,
        max_bytes: int = MAX_BYTES,
        max_age: float = MAX_AGE,
        max_outstanding_bytes: int = MAX_OUTSTANDING_BYTES,
        max_tries: int = MAX_TRIES,
        stop_on_error: bool = False,
        lookup: Literal["error", "always"] = "error",
        rng: Random | None = None,
    ) -> None:
        _check_choice(stream, "compression", compression, _COMPRESSIONS)
        _check_choice(stream, "buffer_by", buffer_by, ("shard", "key"))
        _check_choice(stream, "lookup", lookup, ("error", "always"))
        _check_least(stream, 1, max_records=max_records, max_bytes=max_bytes, max_tries=max_tries)
        _check_least(stream, 1, max_outstanding_bytes=max_outstanding_bytes)
        _check_least(stream, 0, max_age=max_age)
        if max_bytes > MOST_BYTES:
            raise _invalid(stream, "max_bytes", max_bytes, f"at most {MOST_BYTES}, of which a fetch opens a batch")
        self._stream, self._cluster = stream, cluster
        self._shards = ShardMap(stream, cluster, lookup=lookup)
        self._compression = _COMPRESSIONS[compression]
        self._by_key = buffer_by == "key"
        self._limits = BatchLimits(max_records, max_bytes, max_age)
        self._max_outstanding = max_outstanding_bytes
        self._max_tries, self._stop_on_error = max_tries, stop_on_error
        self._rng = rng or Random()  # noqa: S311 - spreads retries, no secret
        self._lanes: dict[int | str, Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._outstanding = 0
        self._generation = 0
        """`ShardMap.generation` of the shards that the lanes are for."""
        self._turn, self._room = asyncio.Lock(), asyncio.Event()
        self._closed = False
        self._first_error: SilverfoldError | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        else:
            await self.abort()

    @property
    def outstanding_bytes(self) -> int:
        """Bytes of the records taken and not answered, with what they cost in memory."""
        return self._outstanding

    async def append(self, record: Record | Mapping[str, Json] | bytes, key: str | None = None) -> RecordId:
        """Append a record, and return its id once the server answered.

        Tasks that append at the same time share batches. Cancelling one of them does not take its record back.

        Args:
            record: An object (HRecord), or bytes (RawRecord).
            key: Records of one key are in one shard, in the order of their appends. None is the key "".

        Raises:
            InvalidValue: The record cannot be sent, or is too large.
            SourceUnavailable: No node answered in time, in all tries; the record may be in the stream, once for each.
            SourceRefused: The server refused the append.
            LocalProtocolError: The producer is closed.
        """
        return await (await self._take(record, key or "", is_submitted=False))

    async def submit(
        self, record: Record | Mapping[str, Json] | bytes, key: str | None = None
    ) -> asyncio.Future[RecordId]:
        """Take a record, waiting while the buffer is full, and return the future of its id.

        The future raises what `append` would. So does the next `flush` or `close`: futures need not be awaited.

        Raises:
            InvalidValue, LocalProtocolError: As for `append`.
            SourceUnavailable, SourceRefused: The stream's shards are not known yet, and cannot be listed.
        """
        return await self._take(record, key or "", is_submitted=True)

    async def flush(self) -> None:
        """Send all records taken so far, and wait until each was answered or failed.

        Raises:
            SilverfoldError: The first error of a submitted record since the last flush.
        """
        await self._drain()
        error, self._first_error = self._first_error, None
        if error is not None:
            raise error

    async def close(self) -> None:
        """Take no more records, then `flush`. Idempotent; if cancelled, records not answered yet fail."""
        self._closed = True
        self._room.set()
        try:
            await self.flush()
        finally:
            await self.abort()

    async def abort(self) -> None:
        """Take no more records; those not answered yet fail, sent or not. Idempotent."""
        self._closed = True
        self._room.set()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._first_error = None

    async def _take(
        self, given: Record | Mapping[str, Json] | bytes, key: str, *, is_submitted: bool
    ) -> asyncio.Future[RecordId]:
        encoded = encode_entry(to_record(given), key)
        async with self._turn:  # whoever comes first, also when there is no room
            shard_id = await self._shard_of(key)
            if (generation := self._shards.generation) != self._generation:
                await self._drain()  # else a key's next record, in its new shard's lane, would overtake the one before
                self._generation = generation
            loop = asyncio.get_running_loop()
            entry = Entry(encoded, key, loop.create_future(), loop.time(), is_submitted)
            while not self._closed and self._outstanding and self._outstanding + entry.cost > self._max_outstanding:
                self._room.clear()
                for lane in self._lanes.values():
                    lane.hurry()
                await self._room.wait()
            if self._closed:
                raise LocalProtocolError(f"the producer of {self._stream} is closed")
            self._outstanding += entry.cost
            must_yield = self._lane(key if self._by_key else shard_id, shard_id).put(entry)
        if must_yield:
            await asyncio.sleep(0)  # else a loop of submits would leave no time to send
        return entry.future

    async def _drain(self) -> None:
        """Send all records taken so far, and wait until each was answered or failed."""
        flushed = [lane.flush() for lane in self._lanes.values()]
        if flushed:
            await asyncio.wait(flushed)

    async def _shard_of(self, key: str) -> int:
        """Return the shard of a key. While no node answers, try as often as an append."""
        backoff, tries = None, 0
        while True:
            try:
                return await self._shards.shard_of(key)
            except SourceUnavailable:
                tries += 1
                if tries == self._max_tries or self._closed:
                    raise
            backoff = backoff or waits(self._rng)  # seldom needed, and a tenth of a record's time
            await asyncio.sleep(backoff.next_wait())

    def _lane(self, name: int | str, shard_id: int) -> Lane:
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = Lane(shard_id, self._limits)
            task = asyncio.create_task(self._run(name, lane))
            self._tasks.add(task)
            task.add_done_callback(partial(self._end, name, lane))
        return lane

    async def _run(self, name: int | str, lane: Lane) -> None:
        """Send a lane's batches, one after the other, until it is empty."""
        while lane.pending:
            error = await self._send(lane.shard_id, await lane.next_batch())
            self._settle(lane, lane.sending)
            if error is not None and self._stop_on_error:
                self._fail(lane, error)
        del self._lanes[name]

    def _end(self, name: int | str, lane: Lane, task: asyncio.Task[None]) -> None:
        """Fail what a cancelled task leaves."""
        self._tasks.discard(task)
        if lane.sending or lane.pending:
            del self._lanes[name]
            self._fail(lane, SourceUnavailable(f"the producer of {self._stream} ended before an answer came"))

    def _fail(self, lane: Lane, error: SilverfoldError) -> None:
        entries = [*lane.sending, *lane.pending]
        lane.pending.clear()
        self._fail_entries(entries, error)
        self._settle(lane, entries)

    def _fail_entries(self, entries: Sequence[Entry], error: SilverfoldError) -> None:
        for each in entries:
            each.fail(error)
            if each.is_submitted and self._first_error is None:
                self._first_error = error

    def _settle(self, lane: Lane, entries: Sequence[Entry]) -> None:
        self._outstanding -= sum(each.cost for each in entries)
        self._room.set()
        lane.settle(len(entries))

    async def _send(self, shard_id: int, entries: Sequence[Entry]) -> SilverfoldError | None:
        """Append a batch, in parts if it is too large or its shard is gone; return an error if one failed."""
        error: SilverfoldError | None = None
        parts = [_Part(shard_id, entries)]
        while parts:
            part = parts.pop()
            if error is None or not self._stop_on_error:
                try:
                    parts += reversed(await self._send_part(part))
                    continue
                except SilverfoldError as found:
                    error = found
            self._fail_entries(part.entries, error)
        return error

    async def _send_part(self, part: _Part) -> Sequence[_Part]:
        """Append records; return the parts to append instead if they are too large, or their shard is gone."""
        batch = await self._encode([each.encoded for each in part.entries])
        if batch.ByteSize() > MAX_STORED_BYTES and len(part.entries) > 1:
            middle = len(part.entries) // 2
            return [part._replace(entries=part.entries[:middle]), part._replace(entries=part.entries[middle:])]
        request = AppendRequest(stream_name=self._stream, shard_id=part.shard_id, records=batch)
        found = await self._append(request, part.tries)
        if isinstance(found, int):
            return await self._by_shard(part.entries, found)
        for entry, record_id in zip(part.entries, found, strict=True):
            entry.resolve(record_id)
        return ()

    async def _by_shard(self, entries: Sequence[Entry], tries: int) -> Sequence[_Part]:
        """Group entries by the shards that have their keys now; the order within a key stays."""
        found: dict[int, list[Entry]] = {}
        for each in entries:
            found.setdefault(await self._shards.shard_of(each.key), []).append(each)
        return [_Part(shard_id, some, tries) for shard_id, some in found.items()]

    async def _encode(self, entries: Sequence[bytes]) -> BatchedRecord:
        if self._compression is CompressionType.NONE:
            return encode_batch(entries, self._compression)
        return await asyncio.to_thread(encode_batch, entries, self._compression)  # pyarrow's codecs release the lock

    async def _append(self, request: AppendRequest, tries: int) -> Sequence[RecordId] | int:
        """Append a batch, with retries. Return its ids; or the number of tries, if its shard is gone meanwhile."""
        if (size := request.records.ByteSize()) > MAX_STORED_BYTES:
            detail = f"a record of {size:,} bytes; a server stores at most {MAX_STORED_BYTES:,}"
            raise InvalidValue(detail, reason="oversized")
        backoff = waits(self._rng)
        misdirected = False
        while await self._shards.has(request.shard_id):
            owner = await self._shards.owner(request.shard_id)
            target = owner if isinstance(owner, str) else None
            found = await self._cluster.channels.attempt(owner, APPEND, request) if isinstance(owner, str) else owner
            if not isinstance(found, Status):
                return appended_ids(found, request.records.batch_size)
            if target is not None:  # else no node answers, and asking each for the shards too would only take longer
                self._shards.forget()
            tries += 1
            is_first_misdirection = found.grpc_code == "FAILED_PRECONDITION" and not misdirected
            if tries == self._max_tries or not (may_pass(found) or is_first_misdirection):
                raise self._cluster.error(found, f"Append to {self._stream}", target)
            misdirected |= is_first_misdirection
            await asyncio.sleep(backoff.next_wait())
        return tries


def _check_choice(stream: str, key: str, found: str | None, allowed: Collection[str | None]) -> None:
    if found not in list(allowed):
        raise _invalid(stream, key, found, f"one of {list(allowed)}")


def _check_least(stream: str, least: int, **options: float) -> None:
    for key, found in options.items():
        is_number = isinstance(found, int if least else int | float) and not isinstance(found, bool)
        if not (is_number and least <= found < float("inf")):
            allowed = f"a whole number of at least {least}" if least else f"a number of at least {least}"
            raise _invalid(stream, key, found, allowed)


def _invalid(stream: str, key: str, found: str | float | None, allowed: str) -> ConfigError:
    return ConfigError(file=f"producer of {stream}", key=key, found=found, allowed=allowed)
