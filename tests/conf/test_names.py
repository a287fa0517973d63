"""Names of columns that Spark takes for one, and names of schemas."""

from __future__ import annotations

import pytest

from silverfold.conf.names import caseless, caseless_schema, schema_parts


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("AlbumId", "ALBUMID"),
        ("\u00c9t\u00e9", "\u00e9T\u00c9"),
        ("\u017fize", "size"),  # long s
        ("\u0131d", "id"),  # i without its dot
        ("\u0130d", "id"),  # I with one
        ("\u00b5", "\u039c"),  # micro sign and Mu
        ("\u03c2", "\u03a3"),  # sigma at a word's end
        ("\u212a", "k"),  # Kelvin
        ("\u1e9e", "\u00df"),  # sharp s, whose capital may be two letters
    ],
)
def test_letters_that_differ_in_case_only_are_one(name: str, same: str):
    assert caseless(name) == caseless(same)


@pytest.mark.parametrize(("name", "other"), [("\u00df", "ss"), ("\ufb01", "fi"), ("e\u0301", "\u00e9")])
def test_letters_that_only_look_alike_are_two(name: str, other: str):
    assert caseless(name) != caseless(other)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("lake", ("lake",)),
        ("main.lake", ("main", "lake")),
        ("my-lake.`data of 2026`", ("my-lake", "data of 2026")),
        ("`a.b`.`c``d`", ("a.b", "c`d")),
    ],
)
def test_a_schema_is_named_with_or_without_its_catalog(name: str, parts: tuple[str, ...]):
    assert schema_parts(name) == parts


@pytest.mark.parametrize("name", ["", "a.", ".a", "a.b.c", "a b", "a`b", "``", "`a", "`a`b", "`a\n`"])
def test_what_names_no_schema_is_refused(name: str):
    with pytest.raises(ValueError, match=r"schema or catalog\.schema"):
        schema_parts(name)


def test_one_schema_has_one_folded_name():
    assert caseless_schema("Lake") == caseless_schema("spark_catalog.`lake`") != caseless_schema("main.lake")
