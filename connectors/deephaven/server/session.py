"""The server's side of one connection, without the connection: requests in, answers and publications out.

Tracks the client's subscriptions and decides the answer to each request. Reads no socket and no clock; the returned
messages have no length prefix. Requests are bounded in size, subscriptions in number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from silverfold.conf.errors import InvalidValue, LocalProtocolError, SilverfoldError, SourceRefused
from silverfold.connectors.deephaven.protocol.control import (
    decode_request,
    encode_connection_response,
    encode_subscribe_response,
    encode_subscription_error,
    encode_unsubscribe_response,
)
from silverfold.connectors.deephaven.protocol.frames import FrameCutter, PrefixCounts, frame
from silverfold.connectors.deephaven.protocol.messages import (
    ErrorCode,
    Request,
    TableSubscribe,
    TableUnsubscribe,
    UnreadableSubscribe,
)
from silverfold.connectors.deephaven.protocol.roles import Roles
from silverfold.connectors.deephaven.server.filters.filters import bind_filter
from silverfold.connectors.deephaven.server.publication import Publication
from silverfold.connectors.deephaven.server.tables.live_table import LiveTable

SMALLEST_BUFFER = 64
"""Minimum message buffer size in bytes: it must hold every control message, and a column message of one long."""
LARGEST_REQUEST = 1 << 20
_MOST_BYTES_OF_A_CHARACTER = 4
MAX_SUBSCRIPTIONS = 1_000

Exports: TypeAlias = Mapping[str, LiveTable]


class ServerSession:
    """One client's subscriptions.

    Feed bytes with `receive`, pull with `next_request`, then answer each request in turn: `subscribe` or `unsubscribe`.

    Args:
        roles: Roles for reading and writing messages.
        exports: The tables exported at the moment, by name. Consulted for every request.
        message_buffer_size: Longest message sent, in bytes, without length prefix.
        prefix_counts: What the length prefix counts.
    """

    def __init__(
        self, roles: Roles, exports: Exports, *, message_buffer_size: int, prefix_counts: PrefixCounts
    ) -> None:
        self._roles = roles
        self._exports = exports
        self._buffer_size = message_buffer_size
        self._prefix_counts = prefix_counts
        self._cutter = FrameCutter(header_size=roles.schema.header.size, counts=prefix_counts, largest=LARGEST_REQUEST)
        self._publications: dict[int, Publication] = {}
        """The client's subscriptions, by subscription id."""

    def greeting(self) -> bytes:
        """Return the first message of the connection."""
        return encode_connection_response(self._roles, self._buffer_size)

    def encode_frame(self, message: bytes) -> bytes:
        """Return a message with its length prefix, ready for the socket."""
        return frame(message, self._prefix_counts, header_size=self._roles.schema.header.size)

    def receive(self, chunk: bytes) -> None:
        """Take bytes as they arrived."""
        self._cutter.receive(chunk)

    def next_request(self) -> Request | None:
        """Return the next request, or None when more bytes are needed.

        Raises:
            WireError, RemoteProtocolError: The client violates the protocol; end the connection.
        """
        body = self._cutter.next_body()
        return None if body is None else decode_request(self._roles, body)

    def subscribe(self, request: TableSubscribe | UnreadableSubscribe) -> tuple[bytes | None, Publication | None]:
        """Return the answer, and the publication to start; None when the answer is an error, as `refusal` returns."""
        if isinstance(request, UnreadableSubscribe):
            return self.refusal(request.subscription_id, ErrorCode.UNEXPECTED_ERROR, str(request.error)), None
        try:
            publication = self._publication(request)
            answer = self._response(publication)
        except SourceRefused as error:
            return self.refusal(request.subscription_id, ErrorCode(error.code), error.text), None
        self._publications[request.subscription_id] = publication
        return answer, publication

    def unsubscribe(self, request: TableUnsubscribe) -> tuple[bytes | None, Publication | None]:
        """Return the answer, None where the schema lacks it; and the publication to stop, None when there was none."""
        publication = self._publications.pop(request.subscription_id, None)
        if publication is None:
            text = f"there is no subscription {request.subscription_id}"
            return self.refusal(request.subscription_id, ErrorCode.INVALID_SUBSCRIPTION_ID, text), None
        if self._roles.unsubscribed is None:
            return None, publication
        return encode_unsubscribe_response(self._roles, request.subscription_id), publication

    def end(self, publication: Publication) -> None:
        """Remove a subscription that has ended by itself; its id may be used again."""
        self._publications.pop(publication.id, None)

    def failure(self, publication: Publication, error: SilverfoldError) -> bytes | None:
        """End a subscription whose rows cannot be sent; return the error message with the reason."""
        self.end(publication)
        if isinstance(error, SourceRefused):
            return self.refusal(publication.id, ErrorCode(error.code), error.text)
        return self.refusal(publication.id, ErrorCode.UNEXPECTED_ERROR, str(error))

    def refusal(self, subscription_id: int, code: ErrorCode, text: str) -> bytes | None:
        """Return an error message, its text shortened to fit the buffer; None where the schema lacks it or the code."""
        text = text[: self._buffer_size]
        try:
            while (excess := len(found := self._error(subscription_id, code, text)) - self._buffer_size) > 0 and text:
                text = text[: -max(excess // _MOST_BYTES_OF_A_CHARACTER, 1)]
        except LocalProtocolError:
            return None
        return found

    def _error(self, subscription_id: int, code: ErrorCode, text: str) -> bytes:
        return encode_subscription_error(self._roles, subscription_id, code, text)

    def _publication(self, request: TableSubscribe) -> Publication:
        if request.subscription_id in self._publications:
            raise _refuse(
                ErrorCode.DUPLICATE_SUBSCRIPTION_ID, f"subscription {request.subscription_id} is in use already"
            )
        table = self._exports.get(request.table)
        if table is None:
            raise _refuse(ErrorCode.UNKNOWN_TABLE, f"no table is exported as {request.table}")
        if len(self._publications) >= MAX_SUBSCRIPTIONS:
            raise _refuse(ErrorCode.UNEXPECTED_ERROR, f"a client has at most {MAX_SUBSCRIPTIONS} subscriptions")
        return self._bind(request, table)

    def _bind(self, request: TableSubscribe, table: LiveTable) -> Publication:
        columns = request.columns or tuple(table.columns)
        for name in columns:
            if name not in table.columns:
                raise _refuse(ErrorCode.UNKNOWN_COLUMN, f"table {request.table} has no column {name}")
        if len(set(columns)) != len(columns):
            raise _refuse(ErrorCode.UNEXPECTED_ERROR, "a column is asked for twice")
        try:
            row_filter = bind_filter(request.filter, table.columns) if request.filter.strip() else None
        except InvalidValue as error:
            raise _refuse(ErrorCode.UNEXPECTED_ERROR, f"filter: {error}") from error
        return Publication(
            id=request.subscription_id,
            table=table,
            mode=request.mode,
            columns=columns,
            filter=row_filter,
            roles=self._roles,
            largest=self._buffer_size,
        )

    def _response(self, publication: Publication) -> bytes:
        types = publication.table.columns
        columns = [(column_id, name, types[name]) for column_id, name in enumerate(publication.columns)]
        try:
            answer = encode_subscribe_response(self._roles, publication.id, columns)
        except (InvalidValue, LocalProtocolError) as error:
            raise _refuse(ErrorCode.UNEXPECTED_ERROR, str(error)) from error
        if len(answer) > self._buffer_size:
            detail = f"a response of {len(answer)} bytes does not fit the buffer of {self._buffer_size}"
            raise _refuse(ErrorCode.UNEXPECTED_ERROR, detail)
        return answer


def _refuse(code: ErrorCode, text: str) -> SourceRefused:
    return SourceRefused(code=code, text=text)
