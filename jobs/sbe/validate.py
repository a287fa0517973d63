"""``silverfold sbe validate``: print the errors and warnings of a schema.

One line each, ``file:line: code: reason``; codes are Exx for errors and Wxx for warnings, and are stable. Groups that
came later, or are deprecated, have a note each.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer
from rich.text import Text

from silverfold.conf.errors import SchemaError
from silverfold.conf.text import in_one_line
from silverfold.jobs.common.console import console_on

if TYPE_CHECKING:
    from silverfold.connectors.wire.sbe.schema.model import Group, Message, Schema

SchemaFile = Annotated[Path, typer.Argument(metavar="FILE.xml", help="The schema; builtin for that of simulate sbe.")]
Accept = Annotated[
    list[str] | None,
    typer.Option(
        "--accept",
        metavar="CODE",
        help="Take an error as a warning: E14 (an enum lists its null value) or E24 (semantic types differ).",
        show_default=False,
    ),
]
_PLACE = re.compile(r"(?P<place>(?P<file>.*?)(?::(?P<line>\d+))?): (?P<code>[EW]\d\d): (?P<reason>.*)", re.DOTALL)


def validate(
    file: SchemaFile,
    strict: Annotated[bool, typer.Option("--strict", help="A name defined twice (W01) is an error.")] = False,
    accept: Accept = None,
) -> None:
    """Check an SBE schema, and say where it breaks which rule.

    Every error and warning is a line of its own: file, line, code, reason. Errors of the encodings are told first;
    those of the messages once the encodings are right. Files the schema includes are checked with it.

    Exit code 0 when the schema is valid, with or without warnings; 2 when it is not.
    """
    from silverfold.connectors.wire.sbe.schema.load import load_schema  # noqa: PLC0415 - --help must not load what jobs run on
    from silverfold.jobs.sbe.findings import has_dates, with_dates  # noqa: PLC0415 - as above

    codes = accepted(accept)
    try:
        schema = load_schema(schema_file(file), accept=codes, strict=strict)
    except SchemaError as error:
        show([*map(_line, error.errors), *error.warnings], sys.stdout)
        typer.echo(in_one_line(_counted(file, len(error.errors), len(error.warnings))))
        raise typer.Exit(2) from None
    dated = has_dates(schema)
    show([with_dates(warning, dated=dated) for warning in schema.warnings], sys.stdout)
    for note in _group_notes(schema):
        typer.echo(in_one_line(f"{file}: note: {with_dates(note, dated=dated)}"))
    typer.echo(in_one_line(f"{_counted(file, 0, len(schema.warnings))}: {with_dates(described(schema), dated=dated)}"))


def schema_file(named: Path) -> Path:
    """Return the file of a schema: for ``builtin``, unless there is such a file, the one of ``simulate sbe``."""
    from silverfold.connectors.sbe.protocol.schemas import BUILTIN_FILE  # noqa: PLC0415 - --help must not load what jobs run on

    return BUILTIN_FILE if str(named) == "builtin" and not named.exists() else named


def accepted(codes: Sequence[str] | None) -> Sequence[str]:
    """Return the codes of errors to take as warnings. Raises BadParameter for a code that cannot be accepted."""
    from silverfold.connectors.wire.sbe.schema.load import ACCEPTABLE  # noqa: PLC0415 - --help must not load what jobs run on

    for code in codes or ():
        if code not in ACCEPTABLE:
            raise typer.BadParameter(f"{code!r} is not one of {', '.join(sorted(ACCEPTABLE))}", param_hint="--accept")
    return codes or ()


def show(findings: Sequence[str], out: TextIO) -> None:
    """Print findings in the order of the file, each on one line, codes coloured on a terminal."""
    console = console_on(out)
    for finding in map(in_one_line, sorted(findings, key=_order)):
        line = Text(finding)
        found = _PLACE.fullmatch(finding)
        assert found is not None
        line.stylize("bold red" if found["code"].startswith("E") else "bold yellow", *found.span("code"))
        console.print(line, soft_wrap=True)


def described(schema: Schema) -> str:
    """Return a one-line description of a schema."""
    package = f" {schema.package}" if schema.package else ""
    order = "little" if schema.byte_order == "<" else "big"
    messages = f"{len(schema.messages)} {'message' if len(schema.messages) == 1 else 'messages'}"
    return f"schema {schema.id}{package}, version {schema.version}, {order}-endian, {messages}"


def _group_notes(schema: Schema) -> Iterator[str]:
    """Yield what each group that came later, or is deprecated, means on the wire."""
    for message in schema.messages.values():
        for path, group in _groups(message, message.name):
            if group.since_version > message.since_version:
                yield f"group {path}, since version {group.since_version}: older messages have no dimensions of it"
            if group.deprecated is not None:
                yield f"group {path}, deprecated since version {group.deprecated}: its dimensions are still on the wire"


def _groups(body: Message | Group, path: str) -> Iterator[tuple[str, Group]]:
    for group in body.groups:
        yield f"{path}.{group.name}", group
        yield from _groups(group, f"{path}.{group.name}")


def _line(error: SchemaError) -> str:
    return str(SchemaError(error.detail, file=error.file, line=error.line, code=error.code))


def _order(finding: str) -> tuple[str, int, str]:
    found = _PLACE.fullmatch(finding)
    assert found is not None
    return found["file"], int(found["line"] or 0), found["code"]


def _counted(file: Path, errors: int, warnings: int) -> str:
    numbers = [(errors, "error"), (warnings, "warning")]
    counts = ", ".join(f"{number} {what}{'' if number == 1 else 's'}" for number, what in numbers if number)
    return f"{file}: {counts if errors else f'valid, {counts}' if warnings else 'valid'}"
