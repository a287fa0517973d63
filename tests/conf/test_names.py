"""Names of columns that Spark takes for one."""

from __future__ import annotations

import pytest

from silverfold.conf.names import caseless


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
