"""Streams and subscriptions of a cluster: created, listed, inspected and deleted. Calls with one answer each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from google.protobuf.message import Message

from silverfold.conf.errors import ConfigError
from silverfold.connectors.hstreamdb.client.cluster import Cluster
from silverfold.connectors.hstreamdb.client.readers import Offset, log_end, shard_offset, tail
from silverfold.connectors.hstreamdb.client.shards import list_shards
from silverfold.connectors.hstreamdb.protocol.description import ClusterDescription
from silverfold.connectors.hstreamdb.protocol.messages.offsets import SpecialOffset, StreamOffset, TimestampOffset
from silverfold.connectors.hstreamdb.protocol.messages.streams import (
    DeleteStreamRequest,
    GetStreamRequest,
    ListStreamsRequest,
    ListStreamsWithPrefixRequest,
    Shard,
    Stream,
    TrimShardRequest,
    TrimShardsRequest,
    TrimStreamRequest,
)
from silverfold.connectors.hstreamdb.protocol.messages.subscriptions import (
    CheckSubscriptionExistRequest,
    Consumer,
    DeleteSubscriptionRequest,
    GetSubscriptionRequest,
    GetSubscriptionResponse,
    ListConsumersRequest,
    ListSubscriptionsRequest,
    ListSubscriptionsWithPrefixRequest,
    Subscription,
)
from silverfold.connectors.hstreamdb.protocol.methods import (
    CHECK_SUBSCRIPTION_EXIST,
    CREATE_STREAM,
    CREATE_SUBSCRIPTION,
    DELETE_STREAM,
    DELETE_SUBSCRIPTION,
    GET_STREAM,
    GET_SUBSCRIPTION,
    LIST_CONSUMERS,
    LIST_STREAMS,
    LIST_STREAMS_WITH_PREFIX,
    LIST_SUBSCRIPTIONS,
    LIST_SUBSCRIPTIONS_WITH_PREFIX,
    TRIM_SHARD,
    TRIM_SHARDS,
    TRIM_STREAM,
)
from silverfold.connectors.hstreamdb.protocol.records import RecordId
from silverfold.connectors.hstreamdb.protocol.status import Action, Status

WEEK: Final = 7 * 86_400
ACK_TIMEOUT_SECONDS: Final = 60
"""Official clients have 600 s, 10,000 records and the latest offset."""
MAX_UNACKED_RECORDS: Final = 100_000
LONGEST_ACK_TIMEOUT: Final = 35_999
OF_OTHER_STREAM: Final = "it stays with its stream, even a deleted one; delete the subscription to make it anew"
"""What to do about a subscription of another stream."""
_MOST: Final = (1 << 31) - 1
_MOST_UNSIGNED: Final = (1 << 32) - 1
_OFFSETS: Final = {each.value: each.name.lower() for each in SpecialOffset}


class Administration:
    """Calls about streams and subscriptions. Each may raise SourceUnavailable, SourceRefused or RemoteProtocolError."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def describe_cluster(self) -> ClusterDescription:
        """Return what a node knows of the cluster, and use the nodes it names from now on."""
        return await self.cluster.describe()

    async def create_stream(
        self, name: str, *, replication_factor: int = 1, shard_count: int = 1, backlog_duration: int = WEEK
    ) -> Stream:
        """Create a stream, or return the one there is if it has the same settings.

        Args:
            backlog_duration: Seconds that records are kept; 0 for no limit.

        Raises:
            ConfigError: There is one with other settings, or a setting is out of range.
            SourceRefused: The name or a setting is invalid.
        """
        file = f"stream {name}"
        _check_range(file, "replication_factor", replication_factor, 0, _MOST_UNSIGNED)
        _check_range(file, "shard_count", shard_count, 0, _MOST_UNSIGNED)
        _check_range(file, "backlog_duration", backlog_duration, 0, _MOST_UNSIGNED)
        wanted = Stream(
            stream_name=name,
            replication_factor=replication_factor,
            shard_count=shard_count,
            backlog_duration=backlog_duration,
        )
        found = await self.cluster.attempt(CREATE_STREAM, wanted)
        if not isinstance(found, Status):
            return found
        if found.action is not Action.COMPARE:
            raise self.cluster.error(found, f"CreateStream of {name}")
        existing = await self.get_stream(name)
        _compare(file, existing, wanted, ("replication_factor", "shard_count", "backlog_duration"))
        return existing

    async def delete_stream(self, name: str, *, force: bool = False, ignore_non_exist: bool = False) -> None:
        """Delete a stream.

        Args:
            force: Also if it has subscriptions. Their consumers go on reading.
            ignore_non_exist: Accept that there is none.
        """
        request = DeleteStreamRequest(stream_name=name, force=force, ignore_non_exist=ignore_non_exist)
        await self.cluster.call(DELETE_STREAM, request)

    async def get_stream(self, name: str) -> Stream:
        """Return a stream's settings. Raises SourceRefused if there is none."""
        return (await self.cluster.call(GET_STREAM, GetStreamRequest(name=name))).stream

    async def list_streams(self, prefix: str = "") -> Sequence[Stream]:
        """Return all streams, or those whose names begin with a prefix."""
        if prefix:
            request = ListStreamsWithPrefixRequest(prefix=prefix)
            return (await self.cluster.call(LIST_STREAMS_WITH_PREFIX, request)).streams
        return (await self.cluster.call(LIST_STREAMS, ListStreamsRequest())).streams

    async def list_shards(self, stream: str) -> Sequence[Shard]:
        """Return the shards of a stream, in the order of their keys. Raises SourceRefused if it is unknown."""
        return await list_shards(self.cluster, stream)

    async def tail(self, stream: str, shard_id: int) -> RecordId | None:
        """Return the last batch of a shard, with the index 0; None if its log's epoch has none yet."""
        return await tail(self.cluster, stream, shard_id)

    async def log_end(self, stream: str, shard_id: int) -> RecordId:
        """Do as `tail`; if the log's epoch has no batch yet, return the batch with the number 0."""
        return await log_end(self.cluster, stream, shard_id)

    async def trim_stream(self, stream: str, until: SpecialOffset | TimestampOffset) -> None:
        """Remove the records of all shards up to and including an offset."""
        if isinstance(until, SpecialOffset):
            point = StreamOffset(special_offset=until)
        else:
            point = StreamOffset(timestamp_offset=until)
        await self.cluster.call(TRIM_STREAM, TrimStreamRequest(stream_name=stream, trim_point=point))

    async def trim_shard(self, stream: str, shard_id: int, until: Offset) -> None:
        """Remove the records of a shard up to and including an offset."""
        request = TrimShardRequest(stream_name=stream, shard_id=shard_id, trim_point=shard_offset(until))
        await self.cluster.call(TRIM_SHARD, request)

    async def trim_shards(self, stream: str, record_ids: Sequence[RecordId]) -> Mapping[int, str]:
        """Remove the records before the smallest id of each shard. Return that id by shard, as text."""
        request = TrimShardsRequest(stream_name=stream, record_ids=[str(each) for each in record_ids])
        return (await self.cluster.call(TRIM_SHARDS, request)).trim_points

    async def create_subscription(
        self,
        subscription_id: str,
        stream: str,
        *,
        ack_timeout_seconds: int = ACK_TIMEOUT_SECONDS,
        max_unacked_records: int = MAX_UNACKED_RECORDS,
        offset: SpecialOffset = SpecialOffset.EARLIEST,
    ) -> Subscription:
        """Create a subscription, or return the one there is if it has the same settings. They can never be changed.

        Args:
            ack_timeout_seconds: Time after which records come again, 1 to 35,999.
            max_unacked_records: Most records on their way, to all consumers together.
            offset: Whether to begin with the oldest record, or with those that come.

        Raises:
            ConfigError: There is one with other settings, or a setting is out of range.
            SourceRefused: There is no such stream, or the name is invalid.
        """
        file = f"subscription {subscription_id}"
        _check_range(file, "ack_timeout_seconds", ack_timeout_seconds, 1, LONGEST_ACK_TIMEOUT)
        _check_range(file, "max_unacked_records", max_unacked_records, 1, _MOST)
        wanted = Subscription(
            subscription_id=subscription_id,
            stream_name=stream,
            ack_timeout_seconds=ack_timeout_seconds,
            max_unacked_records=max_unacked_records,
            offset=offset,
        )
        found = await self.cluster.attempt(CREATE_SUBSCRIPTION, wanted)
        if not isinstance(found, Status):
            return found
        if found.action is not Action.COMPARE:
            raise self.cluster.error(found, f"CreateSubscription of {subscription_id}")
        existing = (await self.get_subscription(subscription_id)).subscription
        names = ("stream_name", "ack_timeout_seconds", "max_unacked_records", "offset")
        _compare(file, existing, wanted, names)
        return existing

    async def delete_subscription(self, subscription_id: str, *, force: bool = False) -> None:
        """Delete a subscription and its progress.

        Args:
            force: Also if it has consumers. Their fetches end.
        """
        request = DeleteSubscriptionRequest(subscription_id=subscription_id, force=force)
        await self.cluster.call_owner(subscription_id, DELETE_SUBSCRIPTION, request)

    async def get_subscription(self, subscription_id: str) -> GetSubscriptionResponse:
        """Return a subscription's settings, and the stored checkpoints of shards that its node reads."""
        request = GetSubscriptionRequest(id=subscription_id)
        return await self.cluster.call_owner(subscription_id, GET_SUBSCRIPTION, request)

    async def list_subscriptions(self, prefix: str = "") -> Sequence[Subscription]:
        """Return all subscriptions of all streams, or those whose names begin with a prefix."""
        if prefix:
            request = ListSubscriptionsWithPrefixRequest(prefix=prefix)
            return (await self.cluster.call(LIST_SUBSCRIPTIONS_WITH_PREFIX, request)).subscription
        return (await self.cluster.call(LIST_SUBSCRIPTIONS, ListSubscriptionsRequest())).subscription

    async def has_subscription(self, subscription_id: str) -> bool:
        """Return whether a subscription exists."""
        request = CheckSubscriptionExistRequest(subscription_id=subscription_id)
        return (await self.cluster.call(CHECK_SUBSCRIPTION_EXIST, request)).exists

    async def list_consumers(self, subscription_id: str) -> Sequence[Consumer]:
        """Return the open fetches of a subscription."""
        request = ListConsumersRequest(subscription_id=subscription_id)
        return (await self.cluster.call_owner(subscription_id, LIST_CONSUMERS, request)).consumers


def _check_range(file: str, key: str, found: int, least: int, most: int) -> None:
    if not least <= found <= most:
        raise ConfigError(file=file, key=key, found=found, allowed=f"{least} to {most:,}")


def _compare(file: str, existing: Message, wanted: Message, names: Sequence[str]) -> None:
    """Raise ConfigError if the settings of something that exists are not the wanted ones."""
    for name in names:
        found, allowed = getattr(existing, name), getattr(wanted, name)
        if name == "offset":
            found, allowed = _OFFSETS.get(found, found), _OFFSETS[allowed]
        if found != allowed:
            way_on = OF_OTHER_STREAM if name == "stream_name" else "it exists already"
            raise ConfigError(file=file, key=name, found=found, allowed=f"{allowed!r}, as wanted: {way_on}")
