"""``silverfold sbe decode``: print the messages of a file as one line of JSON each.

A message that cannot be decoded has a line too, ``{"error", "message", "offset", "at"}``: the error class of
`conf.errors`, its text, the offset in bytes from the start of the message, and the offset of the message in the input.
Errors of the framing, as for a frame of another encoding type, have the offset from the start of the input, and ``at``
is 0: the sum is the place in the input in either case. With lines of hex there is ``line``, their number from 1, and
the input is that line's packet; without a framing a line is one message, and there is no ``at``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from silverfold.conf.errors import WireError
from silverfold.conf.text import in_one_line
from silverfold.jobs.sbe.validate import Accept, accepted, schema_file

if TYPE_CHECKING:
    from silverfold.connectors.wire.sbe.codec.decode import Decoded, MessageReader
    from silverfold.connectors.wire.sbe.codec.values import Finding
    from silverfold.jobs.sbe.input import Message


class BadText(StrEnum):
    """What becomes of bytes that are not text in their charset."""

    STRICT = "strict"
    BYTES = "bytes"
    REPLACE = "replace"


class Printer:
    """Formats messages as lines, and records which findings were reported and whether a message failed.

    Args:
        review: Also report values that the schema does not expect.
        dated: Add dates to versions in reports.
    """

    def __init__(self, reader: MessageReader, *, review: bool, dated: bool) -> None:
        self._reader = reader
        self._review = review
        self._dated = dated
        self._reported: set[tuple[str, str]] = set()
        self._messages = 0
        self.failed = False

    def lines(self, messages: Iterable[Message]) -> Iterator[bytes]:
        """Yield a line for each message. Report findings on stderr, once per reason and element."""
        for message in messages:
            self._messages += 1
            try:
                text = self._text(message)
            except WireError as error:
                self.failed = True
                places = {"offset": error.offset, "at": message.at, "line": message.line}
                where = {name: place for name, place in places.items() if name == "offset" or place is not None}
                text = json.dumps({"error": error.error_class, "message": str(error), **where})
            yield text.encode("utf-8", "backslashreplace") + b"\n"  # a lone surrogate is escaped, as JSON allows

    def _text(self, message: Message) -> str:
        from silverfold.connectors.wire.sbe.codec.decode import json_text  # noqa: PLC0415 - --help must not load what jobs run on

        if isinstance(message.body, WireError):
            raise message.body
        decoded = self._reader.read(message.body)
        self._report(self._findings(decoded))
        return json_text(decoded, size=len(message.body))

    def _findings(self, decoded: Decoded) -> tuple[Finding, ...]:
        if not self._review:
            return decoded.warnings
        from silverfold.connectors.wire.sbe.codec.value_checks import review_values  # noqa: PLC0415 - only on request

        return decoded.warnings + review_values(decoded)

    def _report(self, findings: Iterable[Finding]) -> None:
        from silverfold.jobs.sbe.findings import with_dates  # noqa: PLC0415 - --help must not load what jobs run on

        for finding in findings:
            if (finding.reason, finding.element) not in self._reported:
                self._reported.add((finding.reason, finding.element))
                where = f"message {self._messages}: {finding.reason} in {finding.element}"
                detail = with_dates(finding.detail, dated=self._dated)
                print(in_one_line(f"silverfold: {where}: {detail}"), file=sys.stderr)


def decode(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where the messages are; - for standard input.")],
    schema: Annotated[Path, typer.Option(metavar="FILE.xml", help="The schema; builtin for that of simulate sbe.")],
    *,
    as_hex: Annotated[bool, typer.Option("--hex", help="FILE has one message a line, in hex.")] = False,
    framing: Annotated[
        str | None, typer.Option(metavar="NAME", help="How messages follow each other in FILE.", show_default=False)
    ] = None,
    text: Annotated[BadText, typer.Option(help="Bytes that are no text: an error, hex, or U+FFFD.")] = BadText.STRICT,
    strict: Annotated[bool, typer.Option("--strict", help="Bytes left behind a message are an error.")] = False,
    review: Annotated[bool, typer.Option("--review", help="Also tell values the schema does not expect.")] = False,
    accept: Accept = None,
) -> None:
    """Print SBE messages as JSON, one object a line.

    Each has template, template_id, schema_id, version, length (bytes read), left (bytes behind them, where there are,
    as of messages newer than the schema) and fields. A null value is null; what the message's version does not have yet
    has no key. A message that cannot be decoded has error, message and offset instead, and the next one follows, unless
    the rest of FILE, or of its packet, cannot be cut into messages: the error says so. It also has at, its offset in
    FILE, from which offset counts; with --hex it has line, the number of its line from 1, and with --framing at in that
    line's bytes. What else is odd is told on stderr, once for each kind and element.

    --hex passes over spaces between digits, empty lines, and # with what follows it. --framing NAME is one of
    deephaven, sofh, sofh-little-endian, cme-ilink3, cme-mdp3, cme-mdp3-feca, b3, b3-umdf, memx, coinbase-market-data,
    coinbase-orders, whole (all of FILE is one message) and packed (nothing stands between messages). With both, each
    line is one packet.

    FILE may be larger than memory, or a pipe that goes on: each message is printed once it has come.

    Exit code 1 when a message could not be decoded; 2 when the schema is not valid.
    """
    from silverfold.connectors.wire.sbe.codec.decode import MessageReader  # noqa: PLC0415 - --help must not load what jobs run on
    from silverfold.connectors.wire.sbe.schema.load import load_schema  # noqa: PLC0415 - as above
    from silverfold.jobs.sbe.findings import has_dates  # noqa: PLC0415 - as above
    from silverfold.jobs.sbe.input import chunks, framed_messages, framing_called, hex_messages, opened  # noqa: PLC0415 - as above

    chosen = None if framing is None else framing_called(framing)
    if chosen is None and not as_hex:
        raise typer.BadParameter("one of them must say how messages stand in FILE", param_hint="--hex, --framing NAME")
    loaded = load_schema(schema_file(schema), accept=accepted(accept))
    reader = MessageReader(loaded, text=text.value, strict=strict)
    printer = Printer(reader, review=review, dated=has_dates(loaded))
    out = sys.stdout.buffer
    with opened(file) as source:
        stream = chunks(source, out.flush)
        if as_hex:
            messages = hex_messages(loaded, chosen, stream)
        else:
            assert chosen is not None
            messages = framed_messages(loaded, chosen, stream)
        out.writelines(printer.lines(messages))
    out.flush()
    if printer.failed:
        raise typer.Exit(1)
