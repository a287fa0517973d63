"""A client for asyncio: `connect` to a cluster, then see `silverfold.connectors.hstreamdb.client.client.Client`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from silverfold.connectors.hstreamdb.client.settings import ConnectionSettings

if TYPE_CHECKING:
    from silverfold.connectors.hstreamdb.client.client import Client

__all__ = ["connect"]


async def connect(url: str, **settings: Any) -> Client:
    """Return a client of the cluster with a node at one of these addresses.

    Args:
        url: ``hstream://host[:port],…``, or ``hstreams://`` for TLS.
        settings: Other fields of `ConnectionSettings`, such as ``token``.

    Raises:
        ValueError: The URL or a setting is invalid.
        ModuleNotFoundError: The extra ``hstreamdb`` is not installed.
        ConfigError, SourceUnavailable, SourceRefused: See ``open_client``.
    """
    checked = ConnectionSettings(url=url, **settings)
    try:
        from silverfold.connectors.hstreamdb.client.client import open_client  # noqa: PLC0415 - of the extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("google", "grpc"):
            raise
        wanted = "HStreamDB's client needs grpcio and protobuf: install silverfold[hstreamdb]"
        raise ModuleNotFoundError(wanted, name=error.name) from None
    return await open_client(checked)
