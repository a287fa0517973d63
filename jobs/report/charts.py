"""Charts of a report, as SVG for a page: colours and fonts are the page's, by the names of its CSS variables.

A chart holds no text of the feed's, such as a name or a reason: only numbers, times, and our own words.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from math import ceil, floor, log10
from statistics import median
from typing import Any, Final, NamedTuple

import altair as alt
from markupsafe import Markup

from silverfold.conf.unix_time import unix_millis
from silverfold.pipelines.reading.connection_log import Epoch
from silverfold.pipelines.storage.commit_note import REBUILT
from silverfold.pipelines.storage.cuts import FAILED_RULE, CutRow

_MARGIN: Final = 44
"""Of axes to the left, the same in all charts, so that they are one below the other."""
_NAMESPACE: Final = re.compile(r' xmlns(:\w+)?="[^"]*"')
"""What SVG inside HTML does without."""
_WIDTH: Final = 320
"""Of the space inside axes, in units of which text is 12 high: a page may scale it down to three quarters."""
_FEW: Final = 60
"""Number of values up to which each is a point on the line; there may be only one, which is no line."""
_WIDE_RANGE: Final = 50
"""How many times their median the largest value must be for a logarithmic scale."""

_UNITS: Final = (("seconds", 1), ("minutes", 60), ("hours", 3_600), ("days", 86_400))
_TICKS: Final = (
    (timedelta(minutes=10), "%H:%M:%S", 3),
    (timedelta(hours=36), "%H:%M", 4),
    (timedelta(days=5), "%-d %b %H:%M", 3),
    (timedelta(days=150), "%-d %b", 4),
    (timedelta.max, "%b %Y", 4),
)
"""Format and about the number of labels of a time axis, by the longest span they are for."""

_OPS: Final = {"inserted": ("--good", "triangle-up"), "updated": ("--accent", "circle"), "deleted": ("--bad", "square")}
"""Colour and shape of rows by what a cut did with them; the page has the legend."""

Row = dict[str, Any]


class TableChart(NamedTuple):
    """What is charted of a table."""

    svg: Markup | None
    """None if there is nothing to be seen in a chart."""
    absent: Sequence[str]
    """Sentences on what is not in it."""


class _Panel(NamedTuple):
    title: str
    unit: str
    rows: Sequence[Row]
    """Each with ``time``, in milliseconds since 1970, and ``value``, at least 0."""
    mark: Callable[[alt.Chart, int], alt.Chart]
    """Adds the mark to a chart of so many rows."""


def table_chart(cuts: Sequence[CutRow]) -> TableChart:
    """Return lag, rows, seconds and rule failures of a table's cuts over time, one below the other.

    Args:
        cuts: Oldest first; at least one.
    """
    panels, absent = list[_Panel](), list[str]()
    for panel, sentence in (
        (_timed("Lag: from landing to silver", _lags(cuts)), "The lag of these cuts is not recorded."),
        (_Panel("Rows per cut", "rows", _changes(cuts), _points_by_op), "None of these cuts changed a row."),
        (_timed("Time a cut took", _durations(cuts)), "How long these cuts took is not recorded."),
        (_Panel("Rows that failed a rule", "rows", _failures(cuts), _points), "No row failed a rule in these cuts."),
    ):
        if panel.rows:
            panels.append(panel)
        else:
            absent.append(sentence)
    if not panels:
        return TableChart(None, absent)
    ends = cuts[0].committed_at, cuts[-1].committed_at
    charts = [_chart(panel, _time_axis(*ends, is_labelled=panel is panels[-1])) for panel in panels]
    return TableChart(_svg(alt.vconcat(*charts, spacing=12)), absent)


def epochs_chart(epochs: Sequence[Epoch], now: datetime, *, is_open: bool, width: int = _WIDTH) -> Markup:
    """Return when a feed was connected: a bar for each epoch, and a line where an error ended one.

    Args:
        epochs: Oldest first; at least one.
        is_open: The newest has not ended.
    """
    ends_at = [now if is_open and epoch is epochs[-1] else epoch.ended_at or epoch.opened_at for epoch in epochs]
    # the receiver's clock may be ahead of ours, or have been set back
    spans = [(epoch, max(until, epoch.opened_at)) for epoch, until in zip(epochs, ends_at, strict=True)]
    rows = [{"time": unix_millis(epoch.opened_at), "until": unix_millis(until)} for epoch, until in spans]
    failed = [{"time": unix_millis(until)} for epoch, until in spans if epoch.error_class is not None]
    bars = alt.Chart(alt.InlineData(values=rows)).mark_rect(color="var(--good)", stroke="var(--good)")
    ends = alt.Chart(alt.InlineData(values=failed)).mark_rule(color="var(--bad)", strokeWidth=2)
    axis = _time_axis(min(epoch.opened_at for epoch in epochs), max(now, *(until for _, until in spans)))
    middle, whole = {"y": alt.value(10), "y2": alt.value(34)}, {"y": alt.value(2), "y2": alt.value(42)}
    layers = [bars.encode(x=axis, x2="until", **middle), *([ends.encode(x=axis, **whole)] if failed else [])]
    return _svg(alt.layer(*layers).properties(width=width, height=44))


def _lags(cuts: Sequence[CutRow]) -> list[Row]:
    """Return the lag of each cut that brought what had landed: a rebuild brings it again."""
    return [
        _row(cut, (cut.committed_at - cut.landed_at).total_seconds())
        for cut in cuts
        if cut.landed_at is not None and REBUILT not in cut.notes
    ]


def _changes(cuts: Sequence[CutRow]) -> list[Row]:
    return [{**_row(cut, count), "op": op} for cut in cuts for op in _OPS if (count := getattr(cut, op))]


def _durations(cuts: Sequence[CutRow]) -> list[Row]:
    return [_row(cut, cut.seconds) for cut in cuts if cut.seconds is not None]


def _failures(cuts: Sequence[CutRow]) -> list[Row]:
    counts = ((cut, sum(count for name, count in cut.notes.items() if name.startswith(FAILED_RULE))) for cut in cuts)
    return [_row(cut, count) for cut, count in counts if count]


def _row(cut: CutRow, value: float) -> Row:
    return {"time": unix_millis(cut.committed_at), "value": max(value, 0)}  # clocks of two machines may differ


def _timed(title: str, rows: Sequence[Row]) -> _Panel:
    """Return a panel of durations, given in seconds, in the unit that suits them."""
    longest = max((row["value"] for row in rows), default=0.0)
    unit, size = next((each for each in reversed(_UNITS) if longest >= 2 * each[1]), _UNITS[0])
    return _Panel(title, unit, [{**row, "value": round(row["value"] / size, 4)} for row in rows], _line)


def _chart(panel: _Panel, axis: alt.X) -> alt.Chart:
    scale, ticks = _scale([row["value"] for row in panel.rows])
    is_log = isinstance(ticks, list)
    shown = alt.Axis(
        title=panel.unit,
        values=ticks,
        tickCount=alt.Undefined if is_log else 3,  # with it, a logarithmic axis leaves labels out
        tickMinStep=1 if panel.unit == "rows" else alt.Undefined,
        labelExpr="format(datum.value, '~s')" if panel.unit == "rows" else alt.Undefined,  # 500, 1k
        format=alt.Undefined if panel.unit == "rows" else ",~f",
        minExtent=_MARGIN,
        maxExtent=_MARGIN,
    )
    chart = alt.Chart(alt.InlineData(values=list(panel.rows))).encode(
        x=axis, y=alt.Y("value:Q", scale=scale, axis=shown)
    )
    title = f"{panel.title} (logarithmic)" if is_log else panel.title
    return panel.mark(chart, len(panel.rows)).properties(width=_WIDTH, height=80, title=title)


def _scale(values: Sequence[float]) -> tuple[alt.Scale, list[float] | alt.UndefinedType]:
    """Return a scale from 0, or a logarithmic one, with its ticks, where the largest value would hide most others."""
    most, positive = max(values), [value for value in values if value]
    if not positive or most < _WIDE_RANGE * median(positive):
        return alt.Scale(domain=[0, 1.05 * most or 1], nice=True), alt.Undefined
    first, last = floor(log10(min(positive))), ceil(log10(most))
    decades = range(first, last + 1, ceil((last - first) / 3))
    return alt.Scale(type="log", domain=[10.0**first, 10.0**last], clamp=True), [10.0**each for each in decades]


def _line(chart: alt.Chart, count: int) -> alt.Chart:
    point = alt.OverlayMarkDef(size=16, color="var(--accent)") if count <= _FEW else False
    found: alt.Chart = chart.mark_line(color="var(--accent)", strokeWidth=1.5, point=point)
    return found


def _points(chart: alt.Chart, _count: int) -> alt.Chart:
    found: alt.Chart = chart.mark_point(filled=True, size=22, color="var(--bad)")
    return found


def _points_by_op(chart: alt.Chart, _count: int) -> alt.Chart:
    names, colours = list(_OPS), [f"var({colour})" for colour, _ in _OPS.values()]
    shapes = [shape for _, shape in _OPS.values()]
    found: alt.Chart = chart.mark_point(filled=True, size=24, opacity=0.85)
    return found.encode(
        color=alt.Color("op:N", scale=alt.Scale(domain=names, range=colours), legend=None),
        shape=alt.Shape("op:N", scale=alt.Scale(domain=names, range=shapes), legend=None),
    )


def _time_axis(first: datetime, last: datetime, *, is_labelled: bool = True) -> alt.X:
    """Return the axis of a span of time, in UTC, with some room at both ends."""
    room = max((last - first) * 0.02, timedelta(seconds=1) if last > first else timedelta(seconds=30))
    domain = [unix_millis(first - room), unix_millis(last + room)]
    form, count = next((form, count) for longest, form, count in _TICKS if last - first <= longest)
    axis = alt.Axis(format=form, tickCount=count, title=f"UTC, {_days(first, last)}", labelFlush=True)
    if not is_labelled:
        axis = alt.Axis(labels=False, ticks=False, title=None, tickCount=count)
    return alt.X("time:T", scale=alt.Scale(type="utc", domain=domain), axis=axis)


def _days(first: datetime, last: datetime) -> str:
    """Return the days of a span of time."""
    if first.date() == last.date():
        return f"{last:%-d %b %Y}"
    begins = f"{first:%-d %b}" if first.year == last.year else f"{first:%-d %b %Y}"
    return f"{begins} to {last:%-d %b %Y}"


def _svg(chart: alt.TopLevelMixin) -> Markup:
    out = io.StringIO()
    chart.configure(
        aria=False,  # a label for each point would be half of the page
        background="transparent",
        font="sans-serif",
        view=alt.ViewConfig(stroke=None),
        axis=alt.AxisConfig(
            labelColor="var(--muted)",
            labelFontSize=12,
            titleColor="var(--muted)",
            titleFontSize=12,
            titleFontWeight="normal",
            gridColor="var(--grid)",
            domainColor="var(--grid)",
            tickColor="var(--grid)",
        ),
        title=alt.TitleConfig(color="var(--ink)", anchor="start", fontSize=13, fontWeight="bold", offset=6),
    ).save(out, format="svg")
    return Markup(_NAMESPACE.sub("", out.getvalue()))  # noqa: S704 - made of numbers, times and our own words
