"""``silverfold sbe check``: check whether two versions of an SBE schema can be used side by side.

With ``--json`` one object is printed, with stable names and meanings:

============  ========================================================================================================
verdict       ``compatible``, ``breaking``, or ``invalid`` if a file is not a valid schema
errors        only with ``invalid``, and then the only other key: objects of ``file``, ``line``, ``code``, ``detail``
old, new      ``file``, ``package``, ``id``, ``version``, ``date`` (for a version that counts days, else null)
profile       ``classic`` or ``counted``
directions    directions considered for the verdict: ``backward``, ``forward``
backward      ``verdict``, and the number of findings: ``breaking``, ``warning``, ``information``; likewise ``forward``
findings      ``rule``, ``title``, ``kind`` (``L`` misread, ``M`` other meaning, ``R`` against the rules, ``-``),
              ``backward`` and ``forward`` (``breaking``, ``warning``, ``information``, ``none``), ``message``,
              ``path``, ``used_by``, ``old``, ``new``, ``sentence``; ordered by message id, position and rule
advice        objects of ``message`` and ``text``, for findings that break ``directions``
============  ========================================================================================================
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from silverfold.conf.errors import SchemaError
from silverfold.conf.text import in_one_line
from silverfold.jobs.common.console import console_on, print_json
from silverfold.jobs.sbe.validate import Accept, accepted, schema_file

if TYPE_CHECKING:
    from silverfold.connectors.wire.sbe.compare.findings import Comparison, Direction, Finding
    from silverfold.connectors.wire.sbe.schema.model import Schema

Wanted: TypeAlias = Literal["backward", "forward", "both"]


def check(
    old: Annotated[Path, typer.Argument(metavar="OLD.xml", help="The schema published before.", show_default=False)],
    new: Annotated[Path, typer.Argument(metavar="NEW.xml", help="The schema to publish.", show_default=False)],
    *,
    direction: Annotated[
        Wanted,
        typer.Option(help="Backward: new readers, old messages. Forward: old readers, new messages."),
    ] = "both",
    profile: Annotated[
        Literal["classic", "counted"] | None,
        typer.Option(
            help="Whether messages say how many groups and data they have. By default as header and dimensions say.",
            show_default=False,
        ),
    ] = None,
    packed: Annotated[bool, typer.Option("--packed", help="Nothing stands between messages: framing packed.")] = False,
    accept: Accept = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for scripts.")] = False,
) -> None:
    """Tell what a change of an SBE schema breaks, for whom, and what they would see.

    *Backward* is for those who upgrade first, and for landed frames decoded again; *forward* for those who do not
    upgrade. Layouts are compared, byte by byte: nothing is believed because a version was raised.

    Findings are *breaking*, *warnings* or *information*, under the numbers of their rules; additions that do no harm
    are *fine*. Whether a rename is a new meaning, or old writers filled padding with zeros, no checker can see.

    Exit code 0 when compatible, warnings or not, 1 when breaking, 2 when a file is no valid schema or the schemas have
    no counts for --profile counted.
    """
    from silverfold.connectors.wire.sbe.compare.layouts import profile_of  # noqa: PLC0415 - --help must not load what jobs run on
    from silverfold.connectors.wire.sbe.compare.schemas import compare  # noqa: PLC0415 - as above

    schemas, errors = _loaded([old, new], accepted(accept))
    if errors:
        _refuse(errors, as_json=as_json)
    before, after = schemas
    if profile == "counted" and profile_of(before, after) != profile:
        lacking = "a header or dimensions of these schemas have no numGroups and numVarDataFields"
        raise typer.BadParameter(f"{lacking}: their messages have no counts", param_hint="--profile")
    found = compare(before, after, profile=profile, framed=not packed)
    directions: tuple[Direction, ...] = ("backward", "forward") if direction == "both" else (direction,)
    if as_json:
        print_json(as_object(found, before, after, directions))
    else:
        from silverfold.jobs.sbe.findings import show  # noqa: PLC0415 - as above

        show(found, before, after, directions, console_on(sys.stdout))
    if found.breaks(*directions):
        raise typer.Exit(1)


def _loaded(files: Sequence[Path], accept: Sequence[str]) -> tuple[list[Schema], list[SchemaError]]:
    """Return the schemas, and the errors of all files."""
    from silverfold.connectors.wire.sbe.schema.load import load_schema  # noqa: PLC0415 - --help must not load what jobs run on

    schemas: list[Schema] = []
    errors: list[SchemaError] = []
    for file in files:
        try:
            schemas.append(load_schema(schema_file(file), accept=accept))
        except SchemaError as error:
            errors += error.errors
    return schemas, errors


def _refuse(errors: Sequence[SchemaError], *, as_json: bool) -> None:
    """Print the errors of the files and exit."""
    if as_json:
        objects = [{"file": e.file, "line": e.line, "code": e.code, "detail": e.detail} for e in errors]
        print_json({"verdict": "invalid", "errors": objects})
    else:
        for each in errors:
            place = each.file if each.line is None else f"{each.file}:{each.line}"
            print(in_one_line(f"silverfold: {place}: {each.code}: {each.detail}"), file=sys.stderr)
    raise typer.Exit(2)


def as_object(found: Comparison, old: Schema, new: Schema, directions: Sequence[Direction]) -> dict[str, Any]:
    """Return a comparison as the object printed by ``--json``."""
    return {
        "verdict": "breaking" if found.breaks(*directions) else "compatible",
        "old": _schema(old),
        "new": _schema(new),
        "profile": found.profile,
        "directions": list(directions),
        "backward": _summary(found, "backward"),
        "forward": _summary(found, "forward"),
        "findings": [_finding(finding) for finding in found.findings],
        "advice": [{"message": message, "text": text} for message, text in found.advice(*directions).items()],
    }


def _schema(schema: Schema) -> dict[str, Any]:
    from silverfold.jobs.sbe.findings import date_of  # noqa: PLC0415 - --help must not load what jobs run on

    return {
        "file": schema.file,
        "package": schema.package,
        "id": schema.id,
        "version": schema.version,
        "date": date_of(schema.version),
    }


def _summary(found: Comparison, direction: Direction) -> dict[str, Any]:
    from silverfold.jobs.sbe.findings import count  # noqa: PLC0415 - --help must not load what jobs run on

    return {"verdict": "breaking" if found.breaks(direction) else "compatible", **count(found, direction)}


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "title": finding.title,
        "kind": finding.kind.value,
        "backward": finding.backward.name.lower(),
        "forward": finding.forward.name.lower(),
        "message": finding.message,
        "path": finding.path,
        "used_by": list(finding.used_by),
        "old": finding.old,
        "new": finding.new,
        "sentence": finding.sentence,
    }
