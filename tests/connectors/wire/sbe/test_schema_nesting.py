"""What nests too deep is one mistake, however much deeper it nests."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from silverfold.conf.errors import SchemaError
from silverfold.connectors.wire.sbe.schema.load import load_schema
from tests.support.sbe.basics import HEADER


def chain(numbers: Iterable[int], letter: str = "c") -> str:
    links = [f'<composite name="{letter}{n}"><ref name="r" type="{letter}{n - 1}"/></composite>' for n in numbers]
    return f'<composite name="{letter}0"/>{"".join(links)}'


def errors_of(*types: str) -> list[tuple[str | None, str]]:
    """Return codes and details of what is wrong with a schema of these types."""
    root = 'xmlns:s="http://fixprotocol.io/2016/sbe" id="1" version="0"'
    text = f"<s:messageSchema {root}><types>{HEADER}{''.join(types)}</types></s:messageSchema>"
    with pytest.raises(SchemaError) as raised:
        load_schema(text.encode())
    return [(error.code, error.detail) for error in raised.value.errors]


@pytest.mark.parametrize(
    ("numbers", "message"),
    [(range(1, 300), "composite c64 is nested deeper than 64"), (range(299, 0, -1), "c235 is nested deeper than 64")],
    ids=["the innermost first", "the outermost first"],
)
def test_a_chain_that_is_too_deep_is_told_once(numbers: Iterable[int], message: str):
    assert errors_of(chain(numbers)) == [("E08", message)]


def test_two_chains_that_are_too_deep_are_told_each():
    assert errors_of(chain(range(1, 100)), chain(range(1, 100), "d")) == [
        ("E08", "composite c64 is nested deeper than 64"),
        ("E08", "composite d64 is nested deeper than 64"),
    ]


def test_elements_may_not_nest_without_limit():
    with pytest.raises(SchemaError) as caught:
        load_schema(b"<messageSchema>" + b"<types>" * 10_000 + b"</types>" * 10_000 + b"</messageSchema>")

    assert caught.value.code == "E01"
