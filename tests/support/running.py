"""Runs a build as `silverfold build --once` does."""

from __future__ import annotations

from silverfold.conf.errors import SilverfoldError
from silverfold.pipelines.applying.build import FeedBuild
from silverfold.pipelines.applying.run import run


def run_once(feed_build: FeedBuild) -> dict[str, SilverfoldError]:
    """Apply everything that has landed; return the error of each held table."""
    feed_build.refresh()
    return {table: fault for (_feed, table), fault in run([feed_build]).items()}
