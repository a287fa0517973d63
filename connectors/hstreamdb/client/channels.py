"""gRPC channels of a client: one for each node, shared by all calls, with deadlines, TLS and token.

How a call ended is a value (`Status`), since it decides what to do next; only `Channels.call` raises it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
import ssl
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from grpc import aio

from silverfold.conf.errors import (
    ConfigError,
    LocalProtocolError,
    RemoteProtocolError,
    SilverfoldError,
    UntrustedSource,
)
from silverfold.conf.files import check_files
from silverfold.connectors.common.backoff import Backoff
from silverfold.connectors.common.transport import load_certificate, usable_file
from silverfold.connectors.hstreamdb.client.settings import ConnectionSettings, Tls
from silverfold.connectors.hstreamdb.protocol.methods import Answer, Method, Request
from silverfold.connectors.hstreamdb.protocol.status import Status

UNREACHABLE: Final = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED"})
"""Codes of nodes that do not answer."""
MAX_TRIES: Final = 8
"""Tries of one call while no node can be reached: one that died is replaced within seconds."""
_UNTRUSTED: Final = re.compile("CERTIFICATE_VERIFY_FAILED|Hostname Verification Check failed")
"""Words of gRPC for a certificate that is not trusted, or is of another host."""
FIRST_WAIT: Final = 0.1
LONGEST_WAIT: Final = 30.0
_TOKEN_START: Final = 8
"""First characters by which a token is recognised, even one that was cut off. What may belong to it is hidden too."""
_SHORTEST_PASSWORD: Final = 4
"""Hiding a shorter one everywhere would show it by what is missing."""
_ALPHABETS: Final = {"+": "+-", "-": "+-", "/": "/_", "_": "/_"}
"""Characters of base64 and of its form for URLs."""
_MAX_CHANNELS: Final = 1_000
_OPTIONS: Final = [
    ("grpc.max_receive_message_length", 128 << 20),  # of a frame, the ids alone may have more than the default, 4 MiB
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_retries", 0),
    ("grpc.primary_user_agent", "silverfold"),
    ("grpc.keepalive_time_ms", 300_000),  # servers take more frequent pings for an attack
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.use_local_subchannel_pool", 1),
]


def waits(rng: Random) -> Backoff:
    """Return the waits between tries of a call. They grow, and are spread so that clients do not all return at once."""
    return Backoff(FIRST_WAIT, LONGEST_WAIT, rng)


def may_pass(status: Status) -> bool:
    """Return whether another node, or the same one later, may answer.

    Nodes that stop cancel their calls. Those that refuse a token without TLS do so too, but give no text.
    """
    return status.grpc_code in UNREACHABLE or (status.grpc_code == "CANCELLED" and bool(status.text))


def status_error(status: Status, what: str) -> SilverfoldError:
    """Return the error to raise for the end of a call."""
    if _UNTRUSTED.search(status.text):
        return UntrustedSource(text=f"{what}: {status.text}")
    return status.error(what)


def _secrets(token: str) -> re.Pattern[str] | None:
    """Return a pattern of a token and its password, also as JSON, URLs and the other alphabet of base64 write them."""
    if not token:
        return None
    rest = r"(?:[\w+/=%-]|\\/|\\u[0-9a-fA-F]{4})*"
    patterns = [_written(token.rstrip("=")[:_TOKEN_START], _ALPHABETS) + rest]
    try:
        pair = base64.b64decode(token.translate(str.maketrans("-_", "+/")) + "==").decode()
    except (binascii.Error, UnicodeDecodeError):
        pair = ""  # a server that knows it so does not show it as a text
    if len(password := pair.partition(":")[2]) >= _SHORTEST_PASSWORD:
        patterns.append(_written(password, {}))
    return re.compile("|".join(patterns))


def _written(text: str, same: Mapping[str, str]) -> str:
    """Return the pattern of a text whose characters may be escaped."""
    found = []
    for character in text:
        each = [f"\\\\?{re.escape(form)}|(?i:{_escapes(form)})" for form in same.get(character, character)]
        found.append(f"(?:{'|'.join(each)})")
    return "".join(found)


def _escapes(character: str) -> str:
    in_url = "".join(f"%{byte:02x}" for byte in character.encode())
    return rf"{in_url}|\\u{ord(character):04x}"


class Channels:
    """The channels of a client, by address.

    Raises:
        ConfigError: A file of the TLS settings cannot be read.
    """

    def __init__(self, settings: ConnectionSettings) -> None:
        self._credentials = _credentials(settings) if settings.is_encrypted else None
        self._token = "" if settings.token is None else settings.token.get_secret_value()
        self._secrets = _secrets(self._token)
        self._timeout = settings.timeout
        self._channels: dict[str, aio.Channel] = {}
        self._closed = False

    def status_of(self, error: aio.AioRpcError, method: Method[Any, Any]) -> Status:
        """Return how a call ended. Secrets are hidden in its text, which is logged and shown."""
        text = error.details() or ""
        hidden = self._secrets.sub("***", text) if self._secrets else text
        return Status(error.code().name, hidden, method.name)

    async def attempt(self, target: str, method: Method[Request, Answer], request: Request) -> Answer | Status:
        """Return the answer of a node, or how the call ended without one.

        Raises:
            LocalProtocolError: The client is closed.
            RemoteProtocolError: The answer is not of the method's type.
        """
        found = await self.attempt_bytes(target, method, request)
        if isinstance(found, Status):
            return found
        return _decoded(found, target, method)

    async def attempt_bytes(self, target: str, method: Method[Request, Answer], request: Request) -> bytes | Status:
        """Return the bytes of the answer. Otherwise like `attempt`."""
        call = self._channel(target).unary_unary(method.path, request_serializer=method.request.SerializeToString)
        try:
            with self._unless_closed():
                answer: bytes = await call(request, metadata=self._metadata, timeout=self._timeout)
        except aio.AioRpcError as error:
            return self.status_of(error, method)
        return answer

    def open_stream(self, target: str, path: str) -> Any:
        """Return a call whose requests and answers are bytes, without a deadline."""
        return self._channel(target).stream_stream(path)(metadata=self._metadata)

    async def answers(
        self, target: str, method: Method[Request, Answer], request: Request
    ) -> AsyncGenerator[Answer | Status, None]:
        """Yield the answers of a node to one request, without a deadline, and at last how the call ended.

        Raises:
            LocalProtocolError: The client is closed.
            RemoteProtocolError: An answer is not of the method's type.
        """
        open_call = self._channel(target).unary_stream(method.path, request_serializer=method.request.SerializeToString)
        call = open_call(request, metadata=self._metadata)
        try:
            with self._unless_closed():
                while (answer := await call.read()) is not aio.EOF:
                    yield _decoded(answer, target, method)
            yield Status("OK", "")
        except aio.AioRpcError as error:
            yield self.status_of(error, method)
        finally:
            call.cancel()

    async def close(self) -> None:
        """Close all channels. Calls in flight raise LocalProtocolError. Idempotent."""
        self._closed = True
        channels = list(self._channels.values())
        self._channels.clear()
        for each in channels:
            await each.close()

    @contextmanager
    def _unless_closed(self) -> Iterator[None]:
        """Raise LocalProtocolError if the client is closed meanwhile: gRPC then cancels the tasks that await calls."""
        try:
            yield
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closed and task is not None and not task.cancelling():
                raise _closed() from None
            raise

    @property
    def _metadata(self) -> Sequence[tuple[str, str]]:
        return (("authorization", f"Basic {self._token}"),) if self._token else ()

    def _channel(self, target: str) -> aio.Channel:
        if self._closed:
            raise _closed()
        if target not in self._channels:
            if len(self._channels) == _MAX_CHANNELS:
                raise RemoteProtocolError(f"the cluster names more than {_MAX_CHANNELS} addresses")
            uri = f"dns:///{target}"  # a host may be called unix, or as another scheme
            if self._credentials is None:
                channel = aio.insecure_channel(uri, _OPTIONS)
            else:
                channel = aio.secure_channel(uri, self._credentials, _OPTIONS)
            self._channels[target] = channel
        return self._channels[target]


def _decoded(answer: bytes, target: str, method: Method[Request, Answer]) -> Answer:
    try:
        return method.answer.FromString(answer)
    except DecodeError as error:
        raise RemoteProtocolError(f"{method.name} at {target}: {error}", reason="bad_response") from error


def _closed() -> LocalProtocolError:
    return LocalProtocolError("the client is closed")


def _credentials(settings: ConnectionSettings) -> grpc.ChannelCredentials:
    """Return credentials of files that OpenSSL can use. gRPC itself only fails to connect if it cannot."""
    tls = settings.tls or Tls()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        check_files([tls.root_certificate])
        if tls.root_certificate is not None:
            context.load_verify_locations(tls.root_certificate)
    except OSError as error:
        raise _unusable("tls.root_certificate", tls.root_certificate, error) from error
    try:
        if tls.client_certificate is not None:
            load_certificate(context, tls.client_certificate, tls.client_certificate_key)
    except OSError as error:
        raise _unusable("tls.client_certificate", tls.client_certificate, error) from error
    return grpc.ssl_channel_credentials(
        _content("tls.root_certificate", tls.root_certificate),
        _content("tls.client_certificate_key", tls.client_certificate_key),
        _content("tls.client_certificate", tls.client_certificate),
    )


def _content(key: str, path: str | None) -> bytes | None:
    """Return the content of a file. Raises ConfigError: it may have been replaced since OpenSSL read it."""
    try:
        return None if path is None else Path(path).read_bytes()
    except OSError as error:
        raise _unusable(key, path, error) from error


def _unusable(key: str, path: str | None, error: OSError) -> ConfigError:
    return ConfigError(file="connection settings", key=key, found=path, allowed=usable_file(error))
