"""Times in messages. One outside the range of a Timestamp is ignored: it costs no record and ends no call."""

from __future__ import annotations

from silverfold.connectors.hstreamdb.protocol.messages.batches import BatchedRecord
from silverfold.connectors.hstreamdb.protocol.messages.subscriptions import Subscription


def published_ms(batch: BatchedRecord) -> int:
    """Return the time of a batch's append, in milliseconds since 1970; 0 if it has none, or one out of range."""
    try:
        return batch.publish_time.ToMilliseconds()
    except ValueError:
        return 0


def creation_of(subscription: Subscription) -> str:
    """Return the nanoseconds from 1970 to a subscription's creation, as text. One created anew has others."""
    time = subscription.creation_time
    return str(time.seconds * 10**9 + time.nanos)
