"""Feeds that cannot be together in one project."""

from __future__ import annotations

from pathlib import Path

import pytest

from silverfold.jobs.cli import main

FEED = """
connector = "hstreamdb"
address = "{}"
options = {{ stream = "orders", subscription = "{}" }}
[tables.{}]
keys = ["id"]
columns = {{ id = "bigint" }}
"""


def test_two_feeds_of_one_subscription_are_a_mistake(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "feeds").mkdir()
    feeds = {
        "a": ("hstream://n1,localhost", "one"),
        "b": ("hstream://n2,N1:6570", "one"),
        "c": ("hstream://127.0.0.1,n2", "one"),
        "d": ("hstream://n1", "two"),
    }
    for name, (address, subscription) in feeds.items():
        (tmp_path / "feeds" / f"{name}.toml").write_text(FEED.format(address, subscription, name))
    with pytest.raises(SystemExit) as left:
        main(["--conf", str(tmp_path), "config", "check"])
    assert left.value.code == 2
    assert [line.partition("options.subscription: ")[2] for line in capsys.readouterr().err.splitlines()] == [
        "found 'one at n1:6570', allowed: another one: the feed a has it",
        "found 'one at 127.0.0.1:6570', allowed: another one: the feed a has it",
        "found 'one at n2:6570', allowed: another one: the feed b has it",
    ]
