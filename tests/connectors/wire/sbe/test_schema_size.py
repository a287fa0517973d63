"""A schema twice as long takes twice the work: somebody else wrote it."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable

import pytest

from tests.support.sbe.basics import schema_of

MESSAGE = '<message name="M" id="1"><field name="a" id="1" type="{type}"/></message>'


def composite(size: int) -> tuple[str, str]:
    members = "".join(f'<type name="c{n}" primitiveType="int32"/>' for n in range(size))
    return MESSAGE.format(type="C"), f'<composite name="C">{members}</composite>'


def enum(size: int) -> tuple[str, str]:
    values = "".join(f'<validValue name="v{n}">{n}</validValue>' for n in range(size))
    return MESSAGE.format(type="E"), f'<enum name="E" encodingType="uint32">{values}</enum>'


def messages(size: int) -> tuple[str, str]:
    field = '<field name="a" id="1" type="int8"/>'
    return "".join(f'<message name="M{n}" id="{n}">{field}</message>' for n in range(size)), ""


def fields(size: int) -> tuple[str, str]:
    parts = "".join(f'<field name="f{n}" id="{n}" type="int8"/>' for n in range(size))
    return f'<message name="M" id="1">{parts}</message>', ""


def calls(made: tuple[str, str]) -> int:
    profile = cProfile.Profile()
    profile.runcall(schema_of, *made)
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]  # typeshed does not know it


@pytest.mark.parametrize("make", [composite, enum, messages, fields])
def test_a_schema_twice_as_long_takes_twice_the_calls(make: Callable[[int], tuple[str, str]]) -> None:
    assert calls(make(2_000)) < 2.2 * calls(make(1_000))
