"""Charts of cuts and epochs: what their titles, axes and marks show."""

from __future__ import annotations

import re
from datetime import timedelta

from markupsafe import Markup

from silverfold.jobs.report.charts import epochs_chart, table_chart
from silverfold.pipelines.reading.connection_log import Epoch
from silverfold.pipelines.storage.commit_note import REBUILT
from tests.support.bronze_rows import BEGAN
from tests.support.cut_rows import CUT, cut_after, cuts

LAG, ROWS, TIME, FAILED = "Lag: from landing to silver", "Rows per cut", "Time a cut took", "Rows that failed a rule"


def texts(svg: Markup | None) -> list[str]:
    assert svg is not None
    return re.findall("<text[^>]*>([^<]*)</text>", svg)


def marks(svg: Markup | None, colour: str) -> int:
    """Return the number of filled marks of a colour."""
    assert svg is not None
    return len(re.findall(rf'<path[^>]* fill="var\(--{colour}\)"', svg))


def test_the_four_panels_have_titles_units_and_one_time_axis():
    chart = table_chart(cuts(30))

    shown = texts(chart.svg)
    assert [text for text in shown if text in (LAG, ROWS, TIME, FAILED)] == [LAG, ROWS, TIME, FAILED]
    assert (shown.count("seconds"), shown.count("rows"), shown.count("UTC, 1 May 2024")) == (2, 2, 1)
    assert "00:01:00" in shown
    assert chart.absent == []


def test_what_is_not_there_is_told_in_words():
    quiet = table_chart(cuts(3, landed_at=None, inserted=0, notes={}))
    assert [text for text in texts(quiet.svg) if text in (LAG, ROWS, TIME, FAILED)] == [TIME]
    assert quiet.absent == [
        "The lag of these cuts is not recorded.",
        "None of these cuts changed a row.",
        "No row failed a rule in these cuts.",
    ]

    nothing = table_chart(cuts(1, landed_at=None, inserted=0, notes={}, seconds=None))
    assert (nothing.svg, len(nothing.absent)) == (None, 4)


def test_a_rebuild_has_no_lag():
    rebuilt = cut_after(CUT, notes={REBUILT: 1}, committed_at=BEGAN + timedelta(days=9))
    assert "days" not in texts(table_chart([CUT, rebuilt]).svg)
    assert "The lag of these cuts is not recorded." in table_chart([rebuilt]).absent


def test_a_single_cut_is_a_point_in_each_panel():
    svg = table_chart([CUT]).svg
    lag_and_time, inserted, failed = (marks(svg, colour) for colour in ("accent", "good", "bad"))
    assert (lag_and_time, inserted, failed) == (2, 1, 1)


def test_durations_are_in_the_unit_that_suits_them():
    slow = cuts(3, committed_at=BEGAN + timedelta(hours=5), seconds=600.0)
    assert {"hours", "minutes"} <= set(texts(table_chart(slow).svg))


def test_a_value_that_would_hide_the_others_makes_the_scale_logarithmic():
    few = cuts(20)
    shown = texts(table_chart([*few, cut_after(few[-1], inserted=1_000_000)]).svg)
    assert f"{ROWS} (logarithmic)" in shown
    assert {"1", "100", "10k", "1M"} <= set(shown)
    assert LAG in shown


def test_times_of_clocks_that_differ_are_no_negative_lag():
    shown = texts(table_chart(cuts(3, committed_at=BEGAN - timedelta(hours=1), seconds=None)).svg)
    assert not [text for text in shown if text.startswith(("-", "\u2212"))]


def test_a_long_time_is_told_in_days():
    shown = texts(table_chart([CUT, cut_after(CUT, wait=timedelta(days=40))]).svg)
    assert "UTC, 1 May to 10 Jun 2024" in shown
    assert "19 May" in shown


def test_epochs_are_bars_and_an_error_is_a_line():
    opened = [BEGAN + timedelta(minutes=10 * n) for n in range(3)]
    epochs = [
        Epoch(1, opened[0], opened[0] + timedelta(minutes=5), "reset", "SOURCE_UNAVAILABLE"),
        Epoch(2, opened[1], None),
        Epoch(3, opened[2], None),
    ]

    svg = epochs_chart(epochs, opened[2] + timedelta(minutes=5), is_open=True)

    assert marks(svg, "good") == 3
    assert svg.count('stroke="var(--bad)"') == 1
    assert {"00:00", "00:20", "UTC, 1 May 2024"} <= set(texts(svg))


def test_epochs_of_a_clock_that_is_ahead_are_inside_the_axes():
    opened = [BEGAN + timedelta(hours=n) for n in range(3)]
    svg = epochs_chart([Epoch(n, at, None) for n, at in enumerate(opened)], BEGAN - timedelta(hours=1), is_open=True)
    (width,) = re.findall(r'viewBox="0 0 (\d+)', svg)
    assert int(width) < 360
