"""Subscriptions and their consumers."""

from collections.abc import Sequence
from typing import Annotated

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from silverfold.connectors.hstreamdb.protocol.messages.declaration import Int32, UInt64, field, message
from silverfold.connectors.hstreamdb.protocol.messages.offsets import SpecialOffset


@message
class Subscription(Message):
    """A subscription; its settings never change."""

    subscription_id: str = field(1)
    stream_name: str = field(2)
    ack_timeout_seconds: Int32 = field(3)
    max_unacked_records: Int32 = field(4)
    offset: Annotated[int, SpecialOffset] = field(5)
    creation_time: Timestamp = field(6)


@message
class SubscriptionOffset(Message):
    """The stored checkpoint of a shard; 0 for none."""

    shard_id: UInt64 = field(1)
    batch_id: UInt64 = field(2)


@message
class Consumer(Message):
    """One open fetch."""

    name: str = field(1)
    uri: str = field(2)
    user_agent: str = field(3)


@message
class GetSubscriptionRequest(Message):
    """Request of GetSubscription."""

    id: str = field(1)


@message
class GetSubscriptionResponse(Message):
    """Answer of GetSubscription."""

    subscription: Subscription = field(1)
    offsets: Sequence[SubscriptionOffset] = field(2)


@message
class ListSubscriptionsRequest(Message):
    """Request of ListSubscriptions."""


@message
class ListSubscriptionsResponse(Message):
    """Answer of ListSubscriptions."""

    subscription: Sequence[Subscription] = field(1)


@message
class ListSubscriptionsWithPrefixRequest(Message):
    """Request of ListSubscriptionsWithPrefix."""

    prefix: str = field(1)


@message
class CheckSubscriptionExistRequest(Message):
    """Request of CheckSubscriptionExist."""

    subscription_id: str = field(1)


@message
class CheckSubscriptionExistResponse(Message):
    """Answer of CheckSubscriptionExist."""

    exists: bool = field(1)


@message
class DeleteSubscriptionRequest(Message):
    """Request of DeleteSubscription."""

    subscription_id: str = field(1)
    force: bool = field(2)


@message
class ListConsumersRequest(Message):
    """Request of ListConsumers."""

    subscription_id: str = field(1)


@message
class ListConsumersResponse(Message):
    """Answer of ListConsumers."""

    consumers: Sequence[Consumer] = field(1)
