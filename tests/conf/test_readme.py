"""conf/README.md lists every setting, with the default that the models have."""

from collections.abc import Iterator

import pytest
from pydantic import BaseModel

from silverfold.conf.model import FeedSettings, Settings, Table
from tests.settings_page import PAGE, shown, with_sections

README = PAGE.read_text(encoding="utf-8")


def settings_of(model: type[BaseModel], above: str = "") -> Iterator[tuple[str, str]]:
    """Yield the keys and defaults of a model, as files have them."""
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True)
        if isinstance(default, BaseModel):
            yield from settings_of(type(default), f"{above}{name}.")
        elif above + name != "feeds":
            yield above + name, shown(default)


@pytest.mark.parametrize(
    ("key", "default"),
    [*settings_of(Settings), *settings_of(FeedSettings), *settings_of(Table, "tables.<table>.")],
)
def test_the_readme_has_a_row_for_each_setting_with_its_default(key, default):
    assert f"\n| `{key}` | {default} | " in README


def test_the_sections_of_the_connectors_are_those_of_their_models():
    assert with_sections(README) == README, "python -m tests.settings_page writes them anew"
