"""Feeds that go together, and those that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from silverfold.conf.errors import ConfigError
from silverfold.conf.load import load_settings
from silverfold.connectors.feeds import open_feeds

FEED = 'connector = "deephaven"\naddress = "127.0.0.1:7777"\n{catalog}\n[tables.{table}]\nsource = "Q"\n'


def mistakes(tmp_path: Path, **feeds: tuple[str, str]) -> list[str]:
    """Open feeds with one table each; return what is wrong with them.

    Args:
        feeds: For each feed the catalog, empty for none, and the name of its table.
    """
    (tmp_path / "feeds").mkdir()
    for name, (catalog, table) in feeds.items():
        text = FEED.format(catalog=f"catalog = '{catalog}'" if catalog else "", table=table)
        (tmp_path / "feeds" / f"{name}.toml").write_text(text)
    try:
        open_feeds(load_settings(tmp_path, "local", {}))
    except ConfigError as error:
        return [str(each).removeprefix(f"{tmp_path}/feeds/") for each in (error, *error.others)]
    return []


def test_two_tables_of_one_name_in_one_schema_are_a_mistake(tmp_path: Path):
    found = mistakes(tmp_path, a=("lake", "quotes"), b=("spark_catalog.`Lake`", "Quotes"), c=("", "quotes"))
    assert found == [
        "b.toml: catalog: found 'spark_catalog.`Lake`', allowed: another schema, or another name for table Quotes: "
        "the feed a has one of that name there"
    ]


@pytest.mark.parametrize(("catalog", "table"), [("main.lake", "quotes"), ("lake", "trades"), ("", "quotes")])
def test_tables_of_other_names_or_schemas_go_together(tmp_path: Path, catalog: str, table: str):
    assert mistakes(tmp_path, a=("lake", "quotes"), b=(catalog, table)) == []


def test_a_schema_that_cannot_be_named_is_a_mistake(tmp_path: Path):
    (found,) = mistakes(tmp_path, a=("a.b.c", "quotes"))
    assert found.startswith("a.toml: catalog: found 'a.b.c', allowed: schema or catalog.schema")
