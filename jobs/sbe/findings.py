"""Prints the differences between two SBE schemas for users: by message, severities in colour, the verdict last."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from textwrap import wrap

from rich.console import Console
from rich.text import Text

from silverfold.conf.text import in_one_line
from silverfold.connectors.wire.sbe.compare.findings import Comparison, Direction, Finding, Severity, values_text
from silverfold.connectors.wire.sbe.schema.model import Schema

_WORDS = {
    Severity.BREAKING: ("breaking", "bold red"),
    Severity.WARNING: ("warning", "yellow"),
    Severity.INFORMATION: ("information", "cyan"),
    Severity.NONE: ("fine", "green"),
}
_READERS: dict[Direction, str] = {
    "backward": "new readers of old messages",
    "forward": "old readers of new messages",
}
_COLUMN = 13
"""Column at which the text after the severity begins."""
_MARGIN = "  "
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_DAY = (datetime(2000, 1, 1, tzinfo=UTC) - _EPOCH).days
_LAST_DAY = (datetime(2100, 1, 1, tzinfo=UTC) - _EPOCH).days
_VERSIONS = re.compile(r"\b(since|sinceVersion|deprecated|version) ([0-9]+)\b")


def date_of(version: int) -> str | None:
    """Return the UTC date of a version that plausibly counts days since 1970, from 2000 up to 2100; else None."""
    if not _FIRST_DAY <= version < _LAST_DAY:
        return None
    return f"{_EPOCH + timedelta(days=version):%Y-%m-%d}"


def has_dates(schema: Schema) -> bool:
    """Return whether a schema's versions plausibly count days."""
    return date_of(schema.version) is not None


def with_dates(text: str, *, dated: bool) -> str:
    """Return a text with the date added after each version, if versions count days."""
    return _VERSIONS.sub(_with_date, text) if dated else text


def _with_date(match: re.Match[str]) -> str:
    date = date_of(int(match[2]))
    return match[0] if date is None else f"{match[0]} ({date})"


def count(found: Comparison, direction: Direction) -> dict[str, int]:
    """Return the number of findings of each severity in one direction, worst first."""
    severities = [finding.severity(direction) for finding in found.findings]
    return {word: severities.count(severity) for severity, (word, _) in _WORDS.items() if severity}


def show(found: Comparison, old: Schema, new: Schema, directions: Sequence[Direction], out: Console) -> None:
    """Print the findings that concern the directions, advice for each message, and a verdict for each direction.

    A message comes last if it is broken only by an encoding whose finding is listed under another message.
    """
    dated = has_dates(old) and has_dates(new)
    out.print(Text(in_one_line(f"{old.file} → {new.file}"), style="bold"), soft_wrap=True)
    _print(out, _head(found, old, new, dated=dated), indent=2)
    concerned = [finding for finding in found.findings if _concerns(finding, directions)]
    advice = found.advice(*directions)
    groups = [(name, list(findings)) for name, findings in groupby(concerned, key=lambda finding: finding.message)]
    listed = {name for name, _ in groups}
    for message, findings in [*groups, *((name, list[Finding]()) for name in advice if name not in listed)]:
        out.print()
        out.print(Text(_title(message, new, old), style="bold"))
        for finding in findings:
            _show_finding(finding, directions, out, dated=dated)
        if message in advice:
            _print(out, f"  → {with_dates(advice[message], dated=dated)}", indent=4)
    out.print()
    for direction in directions:
        _show_verdict(found, direction, out)


def _head(found: Comparison, old: Schema, new: Schema, *, dated: bool) -> str:
    name = f"{new.package}, id {new.id}" if new.package else f"id {new.id}"
    before, after = (with_dates(f"version {schema.version}", dated=dated) for schema in (old, new))
    return f"{name}: {before} → {after.removeprefix('version ')}; {found.profile} messages"


def _title(message: str | None, new: Schema, old: Schema) -> str:
    if message is None:
        return "Schema"
    known = new.messages.get(message) or old.messages[message]
    return f"{message}, template {known.id}"


def _concerns(finding: Finding, directions: Sequence[Direction]) -> bool:
    """Return whether to show a finding: one that affects the directions, or a change that is harmless throughout."""
    return finding.worst is Severity.NONE or _worst(finding, directions) is not Severity.NONE


def _worst(finding: Finding, directions: Sequence[Direction]) -> Severity:
    return max(finding.severity(direction) for direction in directions)


def _show_finding(finding: Finding, directions: Sequence[Direction], out: Console, *, dated: bool) -> None:
    word, style = _WORDS[_worst(finding, directions)]
    rest = f"{finding.rule:<5}{finding.path}: {finding.title}{_where(finding, directions)}"
    indent = len(_MARGIN) + _COLUMN + 5
    _print(out, f"{_MARGIN}{word:<{_COLUMN}}{rest}", indent=indent, style=style, styled=len(_MARGIN) + _COLUMN)
    for line in _details(finding):
        _print(out, " " * indent + with_dates(line, dated=dated), indent=indent)


def _where(finding: Finding, directions: Sequence[Direction]) -> str:
    """Return the severity in each direction, if they differ."""
    words = [(direction, _WORDS[finding.severity(direction)][0]) for direction in directions]
    if len({word for _, word in words}) == 1:
        return ""
    return f" ({', '.join(f'{direction} {word}' for direction, word in words)})"


def _details(finding: Finding) -> Iterator[str]:
    yield finding.sentence
    if values := values_text(finding):
        yield values
    if finding.used_by:
        yield f"used by {', '.join(finding.used_by)}"


def _print(out: Console, text: str, *, indent: int, style: str = "", styled: int = 0) -> None:
    """Print a text wrapped to the terminal, further lines indented, its first ``styled`` columns in a style."""
    blanks, width = " " * indent, max(out.width, 2 * indent)
    lines = wrap(text, width, subsequent_indent=blanks, break_long_words=False, break_on_hyphens=False)
    for number, line in enumerate(lines):
        shown = Text(line)
        shown.stylize(style, 0, 0 if number else styled)
        out.print(shown, soft_wrap=True)


def _show_verdict(found: Comparison, direction: Direction, out: Console) -> None:
    word, style = ("breaking", "bold red") if found.breaks(direction) else ("compatible", "bold green")
    counted = ", ".join(f"{number} {name}" for name, number in count(found, direction).items() if number)
    summary = f"{direction}, {_READERS[direction]}{f': {counted}' if counted else ''}"
    _print(out, f"{word:<{_COLUMN}}{summary}", indent=_COLUMN, style=style, styled=_COLUMN)
