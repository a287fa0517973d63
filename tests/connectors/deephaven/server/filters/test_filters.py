"""Row filters: every construct, and every error."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.deephaven.server.filters.filters import bind_filter
from silverfold.connectors.deephaven.server.tables.live_table import LiveTable

NAN, INFINITY = float("nan"), float("inf")
COLUMNS = {
    "Sym": "String",
    "Size": "Int",
    "Small": "Byte",
    "Price": "Double",
    "Rate": "Float",
    "Flag": "Boolean",
    "Code": "Char",
    "When": "DateTime",
    "Amount": "Decimal",
    "Other": "String",
    "Limit": "Long",
    "Tags": "StringSet",
    "Prices": "DoubleArray",
}
ROWS = [
    {
        "Sym": "AAPL",
        "Size": 100,
        "Small": 1,
        "Price": 1.5,
        "Rate": 0.1,
        "Flag": True,
        "Code": "a",
        "When": 1_503_667_800_000_000_000,  # 2017-08-25T13:30:00Z
        "Amount": Decimal("10.00"),
        "Other": "AAPL",
        "Limit": 50,
        "Tags": ["x"],
        "Prices": [1.0],
    },
    {
        "Sym": "IBM",
        "Size": 200,
        "Small": -1,
        "Price": NAN,
        "Rate": NAN,
        "Flag": False,
        "Code": "b",
        "When": 1_503_667_800_000_000_001,
        "Amount": Decimal("10.01"),
        "Other": "MSFT",
        "Limit": 200,
        "Tags": [],
        "Prices": [],
    },
    {"Price": -INFINITY, "Limit": 0},
]


def test_names_of_columns_have_the_letters_of_java() -> None:
    table = LiveTable({"Größe": "Int", "$π_1": "Int"})
    with table.update() as update:
        update.add([{"Größe": size, "$π_1": 1} for size in (1, 2)])
    rows = table.snapshot(("Größe", "$π_1")).rows

    assert bind_filter("Größe > $π_1", table.columns).mask(rows).tolist() == [False, True]
    with pytest.raises(InvalidValue, match="at byte 10: '1' has no place"):
        bind_filter("Größe = 1ö", table.columns)


def matching(text: str) -> list[int]:
    table = LiveTable(COLUMNS)
    with table.update() as update:
        update.add(ROWS)
    found = bind_filter(text, table.columns)
    return table.snapshot(found.columns).rows.where(found.mask(table.snapshot(found.columns).rows)).keys.tolist()


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("Sym = `AAPL`", [0]),
        ("Sym == `AAPL`", [0]),
        ("Sym = 'AAPL'", [0]),
        ("`AAPL` = Sym", [0]),
        ("Sym != `AAPL`", [1, 2]),
        ("Sym < `IBM`", [0, 2]),
        ("Sym = ``", []),
        ("Sym = null", [2]),
        ("Sym != null", [0, 1]),
        ("null = Sym", [2]),
        ("Sym > null", [0, 1]),
        ("Sym <= null", [2]),
        ("Sym in `AAPL`, `MSFT`", [0]),
        ("Sym in `AAPL`, null", [0, 2]),
        ("Sym not in `AAPL`, `MSFT`", [1, 2]),
        ("Sym not in null", [0, 1]),
        ("isNull(Sym)", [2]),
        ("!isNull(Sym)", [0, 1]),
        ("! isNull ( Sym )", [0, 1]),
        ("isNull(Tags)", [2]),
        ("isNull(Prices)", [2]),
        ("isNull(Price)", []),
        ("Size > 100", [1]),
        ("Size >= 100L", [0, 1]),
        ("100 < Size", [1]),
        ("Size < 150", [0, 2]),
        ("Size = 100.0", [0]),
        ("Size = 100.5", []),
        ("Size != 100.5", [0, 1, 2]),
        ("Size > 99.5", [0, 1]),
        ("Size >= 100.5", [1]),
        ("Size < 100.5", [0, 2]),
        ("Size <= 99.5", [2]),
        ("Size in 100, 200.5, 99999999999", [0]),
        ("Size < 99999999999", [0, 1, 2]),
        ("Size = -2147483648", []),
        ("Small < -0.5", [1, 2]),
        ("Small in -1, 300", [1]),
        ("Small < 1e3", [0, 1, 2]),
        ("Price = 1.5", [0]),
        ("Price = 15e-1d", [0]),
        ("Price > 1.5", [1]),
        ("Price < 0", [2]),
        ("Price < .5f", [2]),
        ("Price in 1.5, 2", [0]),
        ("Price != null", [0, 1, 2]),
        ("Price > null", [0, 1, 2]),
        ("Price > -1e999", [0, 1]),
        ("Rate = 0.1", [0]),
        ("Rate in 0.1", [0]),
        ("Rate > 1e300", [1]),
        ("Flag = true", [0]),
        ("Flag != true", [1, 2]),
        ("Flag in false, null", [1, 2]),
        ("Code = 'a'", [0]),
        ("Code > `a`", [1]),
        ("Code < `a`", [2]),
        ("Code in `b`", [1]),
        ("When = `2017-08-25T13:30:00Z`", [0]),
        ("When > `2017-08-25T13:30Z`", [1]),
        ("When = `2017-08-25T13:30:00.000000001Z`", [1]),
        ("When < `1969-01-01Z`", [2]),
        ("Amount = 10", [0]),
        ("Amount > 10.005", [1]),
        ("Amount < 10", [2]),
        ("Amount in 10.010, 3", [1]),
        ("Sym = Other", [0, 2]),
        ("Sym < Other", [1]),
        ("Size <= Limit", [1, 2]),
        ("Small < Price", [0, 1, 2]),
        ("Price >= Rate", [0, 1, 2]),
        ("Size = 100 || Size = 200", [0, 1]),
        ("Size = 100 && Flag = true", [0]),
        ("Size = 100 || Size = 200 && Flag = true", [0]),
        ("(Size = 100 || Size = 200) && Flag = false", [1]),
        ("!(Size = 100 && Flag = true)", [1, 2]),
        ("!!(Size = 100)", [0]),
        ("Sym in `AAPL`, `IBM` && Size > 100 || isNull(Sym)", [1, 2]),
        ("\tSym\n=`AAPL`  ", [0]),
        ('Sym = "AAPL"', [0]),
        ("Size = 100, Flag = true", [0]),
        ("Size = 100 || Size = 200, Flag = false", [1]),
        ("Sym in `AAPL`, `IBM`, Size > 100", [1]),
        ("Size in 100, -1, 150 < Limit", []),
        ("Size in 100, 200, -150 < -Size", [0]),
        ("Flag", [0]),
        ("!Flag", [1, 2]),
        ("Flag && Size = 100 || (Flag)", [0]),
        ("Sym icase in `aapl`, `ibM`", [0, 1]),
        ("Sym icase in `aapl`, null", [0, 2]),
        ("Sym icase not in `aapl`", [1, 2]),
        ("Size icase in 100", [0]),
        ("Sym includes `AP`", [0]),
        ("Sym includes `AP`, `BM`", [0, 1]),
        ("Sym includes any `AP`, `BM`", [0, 1]),
        ("Sym includes all `A`, `L`", [0]),
        ("Sym includes `ap`", []),
        ("Sym icase includes `ap`", [0]),
        ("Sym not includes `AP`", [1]),
        ("Sym icase not includes all `a`, `x`", [0, 1]),
        ("Sym.startsWith(`AA`)", [0]),
        ("Sym.endsWith('M')", [1]),
        ("!Sym.contains(`A`)", [1, 2]),
        ("Sym.matches(`[A-P]+`)", [0, 1]),
        ("Sym.matches(`AAP`)", []),
        ("Sym.matches(`AAP|IBM`)", [1]),
        ("isNaN(Price)", [1]),
        ("!isNaN(Rate)", [0, 2]),
        ("isNaN(Size)", []),
        ("isNaN(Price / Price)", [1, 2]),
        ("inRange(Size, 100, 199)", [0]),
        ("inRange(Price, 1, Size)", [0]),
        ("inRange(When, `2017-08-25T13:30Z`, `2017-08-25T13:30Z`)", [0]),
        ("Size + 100 = Limit", []),
        ("Size - Limit = 50", [0]),
        ("Size - Limit - 50 = 0", [0]),
        ("Size - (Limit - 50) = 100", [0]),
        ("Size * 2 + 1 = 201", [0]),
        ("1 + Size * 2 = 201", [0]),
        ("(1 + Size) * 2 = 202", [0]),
        ("Size / 8 = 12.5", [0]),
        ("Size % 7 = 2", [0]),
        ("Small % 2 = -1", [1]),
        ("Size % (Size - 100) = 0", [1]),
        ("Size / (Size - 100) > 1e300", [0]),
        ("Size + 1 = null", [2]),
        ("-Size = -100", [0]),
        ("-(Size + Limit) < -200", [1, 2]),
        ("Small * 1.5 < Price", [1, 2]),
        ("Price + Rate > 1.59", [0, 1]),
        ("Limit * 9223372036854775807 = -50", [0]),
        ("When = `2017-08-25T09:30 NY`", [0]),
        ("When = `2017-08-25T09:30 America/New_York`", [0]),
        ("When = '2017-08-25T15:30:00+02:00'", [0]),
        ("When = '2017-08-25T08:00:00.000000001-05:30'", [1]),
        ("When > '2017-08-25 UTC'", [0, 1]),
    ],
)
def test_a_filter_selects(text: str, rows: list[int]) -> None:
    assert matching(text) == rows


@pytest.mark.parametrize(
    ("text", "offset", "detail"),
    [
        ("", 0, "expected a column"),
        ("`x`", 3, "expected a comparison, found the end"),
        ("Size + 1", 8, "expected a comparison, found the end"),
        ("Sym =", 5, "found the end"),
        ("Sym = `AAPL", 6, "unclosed text"),
        ("Sym = AAPL)", 10, "expected &&, ||, a comma or the end, found )"),
        ("(Size = 1", 9, "expected ), found the end"),
        ("Size = 1 Size = 2", 9, "expected &&, ||, a comma or the end"),
        ("Size = 1 & Size = 2", 9, "'&' has no place"),
        ("Size ^ 1 = 2", 5, "'^' has no place"),
        ("Sym.length() = 2", 4, "expected startsWith, endsWith, contains or matches, found length"),
        ("Sym.contains(Other)", 13, "expected text in backticks, found Other"),
        ("Sym includes 5", 13, "expected text in backticks, found 5"),
        ("Sym icase = `a`", 10, "expected in or includes"),
        ("(Size = 1) + 2 = 3", 11, "expected a value, found a condition"),
        ("Size = 1 = 2", 9, "expected a value, found a condition"),
        ("sqrt(Size) = 2", 0, "sqrt is no function that is understood here; understood are comparisons"),
        ("inRange(Size, 1)", 15, "expected ,, found )"),
        ("Size = 1, ", 10, "expected a column"),
        ("-" * 80 + "1 = Size", 64, "nested deeper than 64"),
        ('Sym = "AAPL', 6, "unclosed text"),
        ("Size = 1.5L", 7, "'1' has no place"),
        ("Size = 0x1F", 7, "'0' has no place"),
        ("Size in", 7, "expected a column, text"),
        ("Size in 1,", 10, "expected a column, text"),
        ("Size in Limit", 8, "found Limit"),
        ("Size not 1", 9, "expected in"),
        ("isNull(`x`)", 7, "expected a column"),
        ("isNull Sym", 7, "expected ("),
        ("in = 1", 0, "expected a column"),
        ("Sym = `é` x", 11, "expected &&, ||, a comma or the end"),
        ("(" * 80 + "Size = 1" + ")" * 80, 64, "nested deeper than 64"),
        ("!" * 80 + "isNull(Sym)", 64, "nested deeper than 64"),
        (" " * 20_000, 16_384, "at most 16384 characters"),
    ],
)
def test_wrong_syntax_is_an_error_with_its_place(text: str, offset: int, detail: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        matching(text)
    assert (caught.value.reason, caught.value.offset) == ("filter-syntax", offset)
    assert detail in caught.value.detail


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("Sym = 1", 6),
        ("Size = `1`", 7),
        ("Size = true", 7),
        ("Flag = 1", 7),
        ("Flag < true", 7),
        ("Code = `ab`", 7),
        ("When > `yesterday`", 7),
        ("When > `2017-13-25Z`", 7),
        ("When > `2017-08-25T13:30`", 7),
        ("When > `2017-08-25 Nowhere/Here`", 7),
        ("When > `2017-08-25T13:30+99:00`", 7),
        ("Size", 0),
        ("!Sym", 1),
        ("Size.startsWith(`1`)", 0),
        ("Size includes `1`", 0),
        ("Sym.matches(`(?=A)`)", 12),
        ("Sym.matches(`(`)", 12),
        ("Sym.matches(`a)|(b`)", 12),
        ("isNaN(Sym)", 0),
        ("Sym + 1 = 2", 4),
        ("Size + `1` = 2", 7),
        ("Amount * 2 = 20", 7),
        ("Size + 1 = `2`", 11),
        ("inRange(Sym, 1, 2)", 13),
        ("When > 5", 7),
        ("Amount = `1`", 9),
        ("Tags = `x`", 7),
        ("Prices = 1", 9),
        ("Tags > null", 7),
        ("Sym = Size", 4),
        ("Amount = Price", 7),
        ("When = Limit", 5),
        ("Flag < Flag", 5),
        ("Tags = Tags", 5),
        ("1 = 1", 2),
        ("Sym in `x`, 1", 12),
        ("Size in 1, `x`", 11),
    ],
)
def test_values_that_do_not_compare_are_an_error_with_its_place(text: str, offset: int) -> None:
    with pytest.raises(InvalidValue) as caught:
        matching(text)
    assert (caught.value.reason, caught.value.offset) == ("filter-type", offset)


@pytest.mark.parametrize("text", ["Size = 1 && Nope = 2", "Size = 1 && isNull(Nope)", "Size = 1 && Nope in 1"])
def test_an_unknown_column_is_named_with_its_place(text: str) -> None:
    with pytest.raises(InvalidValue, match="no column Nope") as caught:
        matching(text)
    assert (caught.value.reason, caught.value.offset) == ("filter-column", text.index("Nope"))


def test_text_is_ordered_by_utf_16_code_units_as_in_java() -> None:
    table = LiveTable({"s": "String"})
    with table.update() as update:
        update.add([{"s": "\uff5e"}, {"s": "\U0001f600"}, {"s": "\u0100"}, {"s": "\u0100a"}])
    rows = table.snapshot().rows
    assert bind_filter("s < `\uff5e`", table.columns).mask(rows).tolist() == [False, True, True, True]
    assert bind_filter("s <= `\u0100`", table.columns).mask(rows).tolist() == [False, False, True, False]


def test_a_filter_names_the_columns_it_looks_at() -> None:
    table = LiveTable(COLUMNS)
    assert bind_filter("Size > 1 || (Sym = Other && Size < 5)", table.columns).columns == ("Size", "Sym", "Other")


def test_no_rows_satisfy_nothing() -> None:
    table = LiveTable({"s": "String", "x": "Double"})
    mask = bind_filter("(s = `a` || s in `b`) && !(x >= 1.5 || isNull(s))", table.columns).mask(table.snapshot().rows)
    assert mask.tolist() == []


@pytest.mark.parametrize("text", ["Size" + "+Size" * 3_000 + "=1", "Flag" + "||Flag" * 2_500, "Flag," * 3_000 + "Flag"])
def test_many_parts_are_no_deep_nesting(text: str) -> None:
    assert matching(text) == ([0] if "Flag" in text else [])


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("test", ["{} in null", "{} not in null", "{} = null", "!({} != null)", "isNull({})"])
def test_every_column_can_be_tested_for_null(column: str, test: str) -> None:
    nulls = [at for at, row in enumerate(ROWS) if column not in row]
    wanted = [at for at in range(len(ROWS)) if (at in nulls) is not ("not" in test)]
    assert matching(test.format(column)) == wanted


@given(st.text("SymFlag=<>!&|(),`'\"in notrue1.5eLf-null+*/%cludes ", max_size=40))
def test_any_text_is_a_filter_or_a_named_error(text: str) -> None:
    with suppress(InvalidValue):
        assert bind_filter(text, LiveTable(COLUMNS).columns).columns


def test_case_is_that_of_javas_equals_ignore_case() -> None:
    table = LiveTable({"s": "String"})
    with table.update() as update:
        update.add([{"s": "i"}, {"s": "\u0130"}, {"s": "\u0131"}, {"s": "\u017f"}])
    rows = table.snapshot().rows
    assert bind_filter("s icase in `I`, `S`", table.columns).mask(rows).tolist() == [True] * 4


def test_a_minus_turns_the_sign_of_a_zero() -> None:
    table = LiveTable({"D": "Double"})
    with table.update() as update:
        update.add([{"D": 0.0}, {"D": -0.0}])
    found = bind_filter("1 / -D < 0", table.columns)

    assert found.mask(table.snapshot(found.columns).rows).tolist() == [True, False]


@pytest.mark.parametrize("amount", ["-1234567890123456789012345678901.5", "1234567890123456789012345678901.5"])
def test_a_number_is_compared_with_all_its_digits(amount: str) -> None:
    table = LiveTable({"Amount": "Decimal"})
    with table.update() as update:
        update.add([{"Amount": Decimal(amount)}, {"Amount": Decimal(amount[:-2])}])

    found = bind_filter(f"Amount = {amount}", table.columns)

    assert found.mask(table.snapshot(found.columns).rows).tolist() == [True, False]
