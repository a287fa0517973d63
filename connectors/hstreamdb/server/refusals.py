"""Refusals of the server: a gRPC code with the server's own error in its text (PROTOCOL.md, "Statuses")."""

from __future__ import annotations

from functools import partial
from typing import Final

from silverfold.connectors.hstreamdb.protocol.status import ErrorCode, status_text


class Refusal(Exception):
    """The end of a call that is no answer.

    Args:
        grpc_code: Name of the gRPC code.
        message: Name of the server's own error, or a sentence.
        error: Number of the error; None for a plain text, which then is the message.
        extra: Any JSON value.
    """

    def __init__(
        self, grpc_code: str, message: str, *, error: ErrorCode | int | None = None, extra: object = None
    ) -> None:
        super().__init__(message)
        self.grpc_code, self.message, self.error, self.extra = grpc_code, message, error, extra

    def text(self, *, as_json: bool) -> str:
        """Return the text of the status.

        Args:
            as_json: Whether it is an object, as from server 0.15.0 on.
        """
        if self.error is None:
            return self.message
        if as_json:
            return status_text(self.error, self.message, self.extra)
        return self.message if self.extra is None else f"{self.message}: {self.extra}"


def _maker(grpc_code: str, message: str, error: ErrorCode, extra: object = None) -> partial[Refusal]:
    return partial(Refusal, grpc_code, message, error=error, extra=extra)


stream_not_found: Final = _maker("NOT_FOUND", "StreamNotFound", ErrorCode.STREAM_NOT_FOUND)
stream_exists: Final = _maker("ALREADY_EXISTS", "StreamExists", ErrorCode.STREAM_EXISTS)
found_subscription: Final = _maker("FAILED_PRECONDITION", "Stream still has subscription", ErrorCode.FOUND_SUBSCRIPTION)
invalid_replica_factor: Final = _maker(
    "INVALID_ARGUMENT", "Stream replicationFactor cannot be zero", ErrorCode.INVALID_REPLICA_FACTOR
)
invalid_shard_count: Final = _maker("INVALID_ARGUMENT", "InvalidShardCount", ErrorCode.INVALID_SHARD_COUNT)
invalid_name: Final = partial(Refusal, "INVALID_ARGUMENT", "InvalidObjectIdentifier")
empty_batch: Final = _maker("INVALID_ARGUMENT", "BatchedRecord shouldn't be Nothing", ErrorCode.EMPTY_BATCH)
too_large: Final = _maker(
    "INVALID_ARGUMENT", "Record size exceeds the maximum size limit", ErrorCode.INVALID_RECORD_SIZE
)
invalid_offset: Final = _maker("INVALID_ARGUMENT", "InvalidOffset", ErrorCode.INVALID_OFFSET)
invalid_record_id: Final = _maker("INVALID_ARGUMENT", "InvalidRecordId", ErrorCode.INVALID_RECORD_ID)
shard_not_exists: Final = _maker("INVALID_ARGUMENT", "ShardNotExists", ErrorCode.SHARD_NOT_EXISTS)
shard_not_found: Final = _maker("NOT_FOUND", "ShardNotFound", ErrorCode.INTERNAL)
subscription_not_found: Final = _maker("NOT_FOUND", "SubscriptionNotFound", ErrorCode.SUBSCRIPTION_NOT_FOUND)
subscription_exists: Final = _maker("ALREADY_EXISTS", "SubscriptionExists", ErrorCode.SUBSCRIPTION_EXISTS)
non_existent_stream: Final = _maker("FAILED_PRECONDITION", "NonExistentStream", ErrorCode.NON_EXISTENT_STREAM)
invalid_subscription_offset: Final = _maker(
    "INVALID_ARGUMENT", "InvalidSubscriptionOffset", ErrorCode.INVALID_SUBSCRIPTION_OFFSET
)
active_consumers: Final = _maker(
    "FAILED_PRECONDITION",
    "FoundActiveConsumers",
    ErrorCode.FOUND_ACTIVE_CONSUMERS,
    "Subscription still has active consumers",
)
wrong_server: Final = _maker("FAILED_PRECONDITION", "WrongServer", ErrorCode.WRONG_SERVER)
reader_exists: Final = _maker("ALREADY_EXISTS", "ShardReaderExists", ErrorCode.INTERNAL)
no_reader: Final = _maker("FAILED_PRECONDITION", "EmptyShardReader", ErrorCode.INTERNAL)
conflicting_offset: Final = _maker("INVALID_ARGUMENT", "ConflictOffset", ErrorCode.CONFLICT_OFFSET)
too_many_shards: Final = partial(Refusal, "INVALID_ARGUMENT", "TooManyShards", error=902)
data_loss: Final = partial(Refusal, "DATA_LOSS", "DataLossGap", error=903)
consumer_exists: Final = _maker("ALREADY_EXISTS", "ConsumerExists", ErrorCode.INTERNAL)
invalid_subscription: Final = _maker("ABORTED", "SubscriptionInvalidError", ErrorCode.INTERNAL, "Invalid Subscription")
stream_read_close: Final = _maker("CANCELLED", "StreamReadClose", ErrorCode.INTERNAL, "Consumer is closed")
unavailable: Final = partial(Refusal, "UNAVAILABLE")


def subscription_is_deleting(subscription: str) -> Refusal:
    """Return the end of a call whose subscription is being deleted."""
    return Refusal("ABORTED", "SubscriptionIsDeleting", error=ErrorCode.INTERNAL, extra=f'"{subscription}"')
