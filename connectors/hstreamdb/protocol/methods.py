"""The methods of ``hstream.server.HStreamApi`` that are used here. Their path is on the wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from silverfold.connectors.hstreamdb.protocol.messages.batches import (
    AppendRequest,
    AppendResponse,
    StreamingFetchRequest,
    StreamingFetchResponse,
)
from silverfold.connectors.hstreamdb.protocol.messages.cluster import (
    DescribeClusterResponse,
    EchoRequest,
    EchoResponse,
    LookupKeyRequest,
    LookupResourceRequest,
    LookupShardReaderRequest,
    LookupShardReaderResponse,
    LookupShardRequest,
    LookupShardResponse,
    LookupSubscriptionRequest,
    LookupSubscriptionResponse,
    ServerNode,
)
from silverfold.connectors.hstreamdb.protocol.messages.readers import (
    CreateShardReaderRequest,
    CreateShardReaderResponse,
    DeleteShardReaderRequest,
    ListShardReadersRequest,
    ListShardReadersResponse,
    ReadShardRequest,
    ReadShardResponse,
    ReadShardStreamRequest,
    ReadShardStreamResponse,
    ReadSingleShardStreamRequest,
    ReadSingleShardStreamResponse,
    ReadStreamByKeyRequest,
    ReadStreamByKeyResponse,
    ReadStreamRequest,
    ReadStreamResponse,
)
from silverfold.connectors.hstreamdb.protocol.messages.streams import (
    DeleteStreamRequest,
    GetStreamRequest,
    GetStreamResponse,
    GetTailRecordIdRequest,
    GetTailRecordIdResponse,
    ListShardsRequest,
    ListShardsResponse,
    ListStreamsRequest,
    ListStreamsResponse,
    ListStreamsWithPrefixRequest,
    Stream,
    TrimShardRequest,
    TrimShardsRequest,
    TrimShardsResponse,
    TrimStreamRequest,
)
from silverfold.connectors.hstreamdb.protocol.messages.subscriptions import (
    CheckSubscriptionExistRequest,
    CheckSubscriptionExistResponse,
    DeleteSubscriptionRequest,
    GetSubscriptionRequest,
    GetSubscriptionResponse,
    ListConsumersRequest,
    ListConsumersResponse,
    ListSubscriptionsRequest,
    ListSubscriptionsResponse,
    ListSubscriptionsWithPrefixRequest,
    Subscription,
)

SERVICE: Final = "hstream.server.HStreamApi"

Request = TypeVar("Request", bound=Message)
Answer = TypeVar("Answer", bound=Message)


@dataclass(frozen=True, slots=True)
class Method(Generic[Request, Answer]):
    """A method with the types of its messages; of a stream, those of each message."""

    name: str
    request: type[Request]
    answer: type[Answer]

    @property
    def path(self) -> str:
        """The path of the HTTP/2 request."""
        return f"/{SERVICE}/{self.name}"


ECHO: Final = Method("Echo", EchoRequest, EchoResponse)
DESCRIBE_CLUSTER: Final = Method("DescribeCluster", Empty, DescribeClusterResponse)
LOOKUP_SHARD: Final = Method("LookupShard", LookupShardRequest, LookupShardResponse)
LOOKUP_SUBSCRIPTION: Final = Method("LookupSubscription", LookupSubscriptionRequest, LookupSubscriptionResponse)
LOOKUP_SHARD_READER: Final = Method("LookupShardReader", LookupShardReaderRequest, LookupShardReaderResponse)
LOOKUP_RESOURCE: Final = Method("LookupResource", LookupResourceRequest, ServerNode)
LOOKUP_KEY: Final = Method("LookupKey", LookupKeyRequest, ServerNode)
CREATE_STREAM: Final = Method("CreateStream", Stream, Stream)
DELETE_STREAM: Final = Method("DeleteStream", DeleteStreamRequest, Empty)
GET_STREAM: Final = Method("GetStream", GetStreamRequest, GetStreamResponse)
LIST_STREAMS: Final = Method("ListStreams", ListStreamsRequest, ListStreamsResponse)
LIST_STREAMS_WITH_PREFIX: Final = Method("ListStreamsWithPrefix", ListStreamsWithPrefixRequest, ListStreamsResponse)
LIST_SHARDS: Final = Method("ListShards", ListShardsRequest, ListShardsResponse)
GET_TAIL_RECORD_ID: Final = Method("GetTailRecordId", GetTailRecordIdRequest, GetTailRecordIdResponse)
TRIM_STREAM: Final = Method("TrimStream", TrimStreamRequest, Empty)
TRIM_SHARD: Final = Method("TrimShard", TrimShardRequest, Empty)
TRIM_SHARDS: Final = Method("TrimShards", TrimShardsRequest, TrimShardsResponse)
APPEND: Final = Method("Append", AppendRequest, AppendResponse)
CREATE_SUBSCRIPTION: Final = Method("CreateSubscription", Subscription, Subscription)
CHECK_SUBSCRIPTION_EXIST: Final = Method(
    "CheckSubscriptionExist", CheckSubscriptionExistRequest, CheckSubscriptionExistResponse
)
LIST_SUBSCRIPTIONS: Final = Method("ListSubscriptions", ListSubscriptionsRequest, ListSubscriptionsResponse)
LIST_SUBSCRIPTIONS_WITH_PREFIX: Final = Method(
    "ListSubscriptionsWithPrefix", ListSubscriptionsWithPrefixRequest, ListSubscriptionsResponse
)
GET_SUBSCRIPTION: Final = Method("GetSubscription", GetSubscriptionRequest, GetSubscriptionResponse)
LIST_CONSUMERS: Final = Method("ListConsumers", ListConsumersRequest, ListConsumersResponse)
DELETE_SUBSCRIPTION: Final = Method("DeleteSubscription", DeleteSubscriptionRequest, Empty)
STREAMING_FETCH: Final = Method("StreamingFetch", StreamingFetchRequest, StreamingFetchResponse)
CREATE_SHARD_READER: Final = Method("CreateShardReader", CreateShardReaderRequest, CreateShardReaderResponse)
LIST_SHARD_READERS: Final = Method("ListShardReaders", ListShardReadersRequest, ListShardReadersResponse)
READ_SHARD: Final = Method("ReadShard", ReadShardRequest, ReadShardResponse)
DELETE_SHARD_READER: Final = Method("DeleteShardReader", DeleteShardReaderRequest, Empty)
READ_SHARD_STREAM: Final = Method("ReadShardStream", ReadShardStreamRequest, ReadShardStreamResponse)
READ_STREAM: Final = Method("ReadStream", ReadStreamRequest, ReadStreamResponse)
READ_SINGLE_SHARD_STREAM: Final = Method(
    "ReadSingleShardStream", ReadSingleShardStreamRequest, ReadSingleShardStreamResponse
)
READ_STREAM_BY_KEY: Final = Method("ReadStreamByKey", ReadStreamByKeyRequest, ReadStreamByKeyResponse)
