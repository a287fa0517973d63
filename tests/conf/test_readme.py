"""conf/README.md lists every setting, with the default that the models have."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from silverfold.conf.model import FeedSettings, Settings, Table
from silverfold.connectors.deephaven.options import DeephavenOptions, DeephavenTable
from silverfold.connectors.sbe.options import SbeOptions, SbeTable
from silverfold.connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable
from silverfold.connectors.sqlitecloud_webhooks.options import WebhookOptions, WebhookTable

README = (Path(__file__).parents[2] / "conf" / "README.md").read_text(encoding="utf-8")


def settings_of(
    model: type[BaseModel], above: str = "", beside: type[BaseModel] = BaseModel
) -> Iterator[tuple[str, str]]:
    """Yield the keys and defaults of a model, as files have them, that another does not have."""
    for attribute, field in model.model_fields.items():
        name = field.alias or attribute
        if name in beside.model_fields:
            continue
        default = field.get_default(call_default_factory=True)
        if isinstance(default, BaseModel):
            yield from settings_of(type(default), f"{above}{name}.")
        elif above + name != "feeds":
            yield above + name, shown(default)


def shown(default: Any) -> str:
    return "none" if default is PydanticUndefined else f"`{json.dumps(default)}`"


@pytest.mark.parametrize(
    ("key", "default"),
    [
        *settings_of(Settings),
        *settings_of(FeedSettings),
        *settings_of(Table, "tables.<table>."),
        *settings_of(DeephavenOptions, "options."),
        *settings_of(DeephavenTable, "tables.<table>.", beside=Table),
        *settings_of(SbeOptions, "options."),
        *settings_of(SbeTable, "tables.<table>.", beside=Table),
        *settings_of(SqliteCloudOptions, "options."),
        *settings_of(SqliteCloudTable, "tables.<table>.", beside=Table),
        *settings_of(WebhookOptions, "options."),
        *settings_of(WebhookTable, "tables.<table>.", beside=Table),
    ],
)
def test_the_readme_has_a_row_for_each_setting_with_its_default(key, default):
    assert f"\n| `{key}` | {default} | " in README
