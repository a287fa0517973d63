"""Calls about subscriptions and their consumers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from google.protobuf.empty_pb2 import Empty

from silverfold.connectors.hstreamdb.protocol import methods
from silverfold.connectors.hstreamdb.protocol.messages.subscriptions import (
    CheckSubscriptionExistRequest,
    CheckSubscriptionExistResponse,
    Consumer,
    DeleteSubscriptionRequest,
    GetSubscriptionRequest,
    GetSubscriptionResponse,
    ListConsumersRequest,
    ListConsumersResponse,
    ListSubscriptionsRequest,
    ListSubscriptionsResponse,
    ListSubscriptionsWithPrefixRequest,
    Subscription,
    SubscriptionOffset,
)
from silverfold.connectors.hstreamdb.protocol.methods import Method
from silverfold.connectors.hstreamdb.protocol.status import ErrorCode
from silverfold.connectors.hstreamdb.server import refusals
from silverfold.connectors.hstreamdb.server.calls.clusters import SUBSCRIPTION
from silverfold.connectors.hstreamdb.server.calls.streams import check_name
from silverfold.connectors.hstreamdb.server.node import Node


async def create_subscription(node: Node, request: Subscription) -> Subscription:
    """Create a subscription; return its settings with the time."""
    check_name(request.subscription_id, ErrorCode.INVALID_SUBSCRIPTION_NAME)
    check_name(request.stream_name)
    return node.store.create_subscription(request).settings


async def check_subscription_exist(
    node: Node, request: CheckSubscriptionExistRequest
) -> CheckSubscriptionExistResponse:
    """Return whether there is a subscription."""
    return CheckSubscriptionExistResponse(exists=request.subscription_id in node.store.subscriptions)


async def list_subscriptions(node: Node, _request: ListSubscriptionsRequest) -> ListSubscriptionsResponse:
    """Return all subscriptions."""
    return ListSubscriptionsResponse(subscription=[each.settings for each in node.store.subscriptions.values()])


async def list_subscriptions_with_prefix(
    node: Node, request: ListSubscriptionsWithPrefixRequest
) -> ListSubscriptionsResponse:
    """Return the subscriptions whose name has a prefix."""
    check_name(request.prefix, ErrorCode.INVALID_SUBSCRIPTION_NAME)
    found = [each.settings for name, each in node.store.subscriptions.items() if name.startswith(request.prefix)]
    return ListSubscriptionsResponse(subscription=found)


async def get_subscription(node: Node, request: GetSubscriptionRequest) -> GetSubscriptionResponse:
    """Return a subscription, and the checkpoints of its reading on this node, if there is one."""
    _check_owner(node, request.id)
    subscription = node.store.subscription(request.id)
    shards = subscription.starts if request.id in node.contexts else ()
    offsets = [SubscriptionOffset(shard_id=each, batch_id=subscription.checkpoints.get(each, 0)) for each in shards]
    return GetSubscriptionResponse(subscription=subscription.settings, offsets=offsets)


async def list_consumers(node: Node, request: ListConsumersRequest) -> ListConsumersResponse:
    """Return the consumers of a subscription on this node."""
    _check_owner(node, request.subscription_id)
    node.store.subscription(request.subscription_id)
    context = node.contexts.get(request.subscription_id)
    consumers = context.consumers.values() if context else ()
    found = [Consumer(name=each.name, uri=each.uri, user_agent=each.user_agent) for each in consumers]
    return ListConsumersResponse(consumers=found)


async def delete_subscription(node: Node, request: DeleteSubscriptionRequest) -> Empty:
    """Delete a subscription; if forced, return when its last consumer is gone."""
    name = request.subscription_id
    check_name(name, ErrorCode.INVALID_SUBSCRIPTION_NAME)
    _check_owner(node, name)
    subscription = node.store.subscription(name)
    if subscription.is_being_deleted:
        raise refusals.subscription_is_deleting(name)
    context = node.contexts.get(name)
    if context and context.consumers and not request.force:
        raise refusals.active_consumers()
    subscription.is_being_deleted = True
    await node.forget(name)
    node.store.subscriptions.pop(name, None)
    return Empty()


def _check_owner(node: Node, subscription: str) -> None:
    """Raise Refusal on another node than the owner; stores an owner if there is none."""
    if node.members.allocated(SUBSCRIPTION, subscription) is not node.member:
        raise refusals.wrong_server(extra="Subscription is bound to a different node")


CALLS: Final[dict[Method[Any, Any], Callable[[Node, Any], Awaitable[Any]]]] = {
    methods.CREATE_SUBSCRIPTION: create_subscription,
    methods.CHECK_SUBSCRIPTION_EXIST: check_subscription_exist,
    methods.LIST_SUBSCRIPTIONS: list_subscriptions,
    methods.LIST_SUBSCRIPTIONS_WITH_PREFIX: list_subscriptions_with_prefix,
    methods.GET_SUBSCRIPTION: get_subscription,
    methods.LIST_CONSUMERS: list_consumers,
    methods.DELETE_SUBSCRIPTION: delete_subscription,
}
