"""The page of a report: HTML that holds all it needs, and asks no host for anything.

Texts of the feed, its peers and its settings are escaped by the template engine, on one line, and no longer than
`_LONGEST`. `page.html` has the words and the style.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from silverfold.conf.text import in_one_line
from silverfold.jobs.report.charts import epochs_chart, table_chart
from silverfold.jobs.report.readings import FeedReading
from silverfold.jobs.status import CELLS, ago, cells, duration, problems, source_lines
from silverfold.pipelines.reading.connection_log import Epoch
from silverfold.pipelines.reading.status import FeedStatus, ReceiverState, TableState

_LONGEST: Final = 600
"""Characters of a text."""
_EPOCHS_LISTED: Final = 8
_FAILURES_LISTED: Final = 50

_STATES: Final = {
    "synced": "good",
    "connected": "good",
    "equal": "good",
    "held": "bad",
    "stopped": "bad",
    "closed": "bad",
    "different": "bad",
    "unknown": "bad",
}
"""Style of a state or a verdict; all others are to be looked at."""


def page_of(reading: FeedReading, warehouse: str) -> str:
    """Return the page about a feed."""
    found = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(
        ago=partial(ago, now=reading.at),
        duration=duration,
        commands=_with_commands,
        number=_number,
        moment=_moment,
        style=_style,
    )
    return found.get_template("page.html").render(
        reading=reading,
        feed=reading.status,
        warehouse=warehouse,
        is_open=_is_open(reading.status),
        names=CELLS[2:],
        cells=partial(cells, now=reading.at),
        source=list(source_lines(reading.status)),
        problems=list(problems(reading.status)),
        table_chart=table_chart,
        epochs_chart=partial(epochs_chart, now=reading.at, is_open=_is_open(reading.status)),
        epochs=_listed(reading.epochs),
        failures=_failures(reading),
        failures_listed=_FAILURES_LISTED,
        synced=sum(table.state is TableState.SYNCED for table in reading.status.tables),
        lag=max((table.lag_seconds for table in reading.status.tables), default=0.0),
        differing=[each for each in reading.verified if each.verdict not in ("equal", "not_built")],
    )


def _shown(value: Any) -> Any:
    """Return a value as it is shown."""
    if value is None:
        return "-"
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return in_one_line(value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…")


def _number(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"


def _with_commands(text: str) -> Markup:
    """Return a text of ours as HTML, with the commands in it, between backquotes, marked."""
    parts = enumerate(_shown(text).split("`"))
    return Markup("").join(Markup("<code>{}</code>").format(part) if n % 2 else escape(part) for n, part in parts)


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%-d %b %Y %H:%M:%S}"


def _style(state: str) -> str:
    """Return the style of a state or a verdict."""
    return _STATES.get(state, "warn")


def _is_open(status: FeedStatus) -> bool:
    return status.receiver is not None and status.receiver.state is not ReceiverState.CLOSED


def _listed(epochs: Sequence[Epoch]) -> list[tuple[Epoch, float | None, float | None]]:
    """Return the newest epochs, newest first, with the seconds that each lasted, and those without one before it."""
    listed = []
    for n in range(len(epochs) - 1, max(len(epochs) - 1 - _EPOCHS_LISTED, -1), -1):
        epoch, before = epochs[n], epochs[n - 1].ended_at if n else None
        lasted = None if epoch.ended_at is None else (epoch.ended_at - epoch.opened_at).total_seconds()
        gap = None if before is None else max(0.0, (epoch.opened_at - before).total_seconds())
        listed.append((epoch, lasted, gap))
    return listed


def _failures(reading: FeedReading) -> list[tuple[str, str, int]]:
    """Return table, rule and failures of each rule that rows failed, most first."""
    found = [
        (table, rule, count) for table, rules in reading.failures.items() for rule, count in rules.items() if count
    ]
    return sorted(found, key=lambda each: -each[2])
