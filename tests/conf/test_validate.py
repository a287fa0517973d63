from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import pytest
from pydantic import Field, model_validator

from silverfold.conf.errors import ConfigError
from silverfold.conf.model import Strict
from silverfold.conf.validate import together, validated


class Mode(StrEnum):
    FULL = "full"
    DIFF = "diff"


class Rule(Strict):
    condition: str
    action: Literal["warn", "drop"] = "warn"


@dataclass(frozen=True)
class Corner:
    x: int
    y: int = 0


@dataclass(frozen=True)
class Shape:
    corners: tuple[Corner, ...]


class Options(Strict):
    mode: Mode = Mode.FULL
    columns: tuple[str, ...] = ()
    ratio: float = Field(default=0.5, gt=0, le=1)
    limit: int | Literal["none"] = "none"
    rules: dict[str, Rule] = Field(default_factory=dict)
    first: int = 0
    last: int = 10
    shape: Shape | None = None

    @model_validator(mode="after")
    def _in_order(self) -> "Options":
        if self.first > self.last:
            raise ValueError("first must not be above last")
        return self


def mistakes(raw: dict[str, object]) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        validated(Options, raw, file="f.toml", prefix="options")
    return [str(error) for error in (raised.value, *raised.value.others)]


def test_toml_values_become_the_models_types():
    options = validated(
        Options,
        {"mode": "diff", "columns": ["a", "b"], "ratio": 1, "limit": 5, "rules": {"r": {"condition": "a > 1"}}},
        file="f.toml",
    )
    assert options == Options(
        mode=Mode.DIFF, columns=("a", "b"), ratio=1.0, limit=5, rules={"r": Rule(condition="a > 1")}
    )


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"mode": "half"}, "options.mode: found 'half', allowed: 'full' or 'diff'"),
        ({"columns": "a"}, "options.columns: found 'a', allowed: a list"),
        ({"columns": ["a", 2]}, "options.columns.1: found 2, allowed: text in quotes"),
        ({"ratio": True}, "options.ratio: found True, allowed: a number"),
        ({"ratio": "0.5"}, "options.ratio: found '0.5', allowed: a number"),
        ({"ratio": 2.0}, "options.ratio: found 2.0, allowed: less than or equal to 1"),
        ({"first": 1.5}, "options.first: found 1.5, allowed: a whole number"),
        ({"limit": "all"}, "options.limit: found 'all', allowed: a whole number or 'none'"),
        (
            {"rules": {"r": {}}},
            "options.rules.r.condition: found nothing, allowed: a value: this setting has no default",
        ),
        (
            {"rules": {"r": {"condition": "x", "acton": "drop"}}},
            "options.rules.r.acton: found a key that is not known, "
            "allowed: no such key, did you mean action? Known here: action, condition",
        ),
        (
            {"shape": {"corners": [{"x": 1, "yy": "secret"}]}},
            "options.shape.corners.0.yy: found a key that is not known, "
            "allowed: no such key, did you mean y? Known here: x, y",
        ),
        (
            {"zzz": 1},
            "options.zzz: found a key that is not known, allowed: no such key. "
            "Known here: columns, first, last, limit, mode, ratio, rules, shape",
        ),
    ],
)
def test_a_mistake_names_the_key_what_was_found_and_what_is_allowed(raw, message):
    assert mistakes(raw) == [f"f.toml: {message}"]


def test_a_rule_between_keys_is_told_for_their_table():
    assert mistakes({"first": 3, "last": 2}) == [
        "f.toml: options: found these settings together, allowed: first must not be above last"
    ]


def test_every_mistake_is_told():
    assert mistakes({"first": "1", "ratio": 0, "colums": []}) == [
        "f.toml: options.ratio: found 0, allowed: greater than 0",
        "f.toml: options.first: found '1', allowed: a whole number",
        "f.toml: options.colums: found a key that is not known, allowed: no such key, did you mean columns? "
        "Known here: columns, first, last, limit, mode, ratio, rules, shape",
    ]


def test_the_file_may_depend_on_the_key():
    with pytest.raises(ConfigError) as raised:
        validated(Options, {"first": "1"}, file=lambda path: f"file of {'/'.join(path)}", prefix="tables.t")
    assert raised.value.file == "file of tables/t/first"


def test_mistakes_of_several_checks_become_one_error_with_others():
    one = ConfigError(file="a", key="k", found=1, allowed="x")
    two = ConfigError(file="b", key="k", found=2, allowed="x", others=(one,))
    merged = together([two, one])
    assert merged.file == "b"
    assert merged.others == (one, one)
