"""A project of one feed, in a folder of settings, and frames for it."""

from __future__ import annotations

from pathlib import Path

from silverfold.pipelines.places import Place, Places
from tests.support.deephaven.landed_history import LandedHistory

QUOTES = '[tables.quotes]\nsource = "Quotes"\n'


def write_project(folder: Path, tables: str = QUOTES, *, settings: str = "") -> Path:
    """Write the settings of a feed ``market`` of Deephaven's into ``my``; return that folder."""
    conf = folder / "my"
    (conf / "feeds").mkdir(parents=True)
    (conf / "feeds" / "market.toml").write_text(f'connector = "deephaven"\naddress = "unused:1"\n{tables}')
    if settings:
        (conf / "settings.toml").write_text(settings)
    return conf


def bronze_of(warehouse: Path) -> Place:
    """Return the place of the feed's bronze in a warehouse."""
    return Places(str(warehouse)).bronze("market")


def quotes(**columns: str) -> LandedHistory:
    """Return a history of quotes, with more columns if named, that has begun: positions 0 to 2 are control."""
    history = LandedHistory({"quotes": {"Sym": "String", "Bid": "Long", **columns}})
    history.connect()
    return history
