"""conf/README.md lists every setting, with the default that the models have."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from conf.model import FeedSettings, Settings, Table

README = (Path(__file__).parents[2] / "conf" / "README.md").read_text(encoding="utf-8")


def settings_of(model: type[BaseModel], above: str = "") -> Iterator[tuple[str, str]]:
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True)
        if isinstance(default, BaseModel):
            yield from settings_of(type(default), f"{above}{name}.")
        elif above + name != "feeds":
            yield above + name, shown(default)


def shown(default: Any) -> str:
    return "none" if default is PydanticUndefined else f"`{json.dumps(default)}`"


@pytest.mark.parametrize(
    ("key", "default"), [*settings_of(Settings), *settings_of(FeedSettings), *settings_of(Table, "tables.<table>.")]
)
def test_the_readme_has_a_row_for_each_setting_with_its_default(key, default):
    assert f"\n| `{key}` | {default} | " in README
