"""Shared strategies for SQLite Cloud notifications: tables, and texts close to real ones."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from silverfold.connectors.sqlitecloud.protocol.landed.control import Description, TableColumn

FOO = Description("foo", (TableColumn("id", pk=1), TableColumn("a"), TableColumn("b")), ("id",))
PAIRS = Description('pä"irs', (TableColumn("k", pk=2), TableColumn("l", pk=1), TableColumn("type")), ("l", "k"))
TABLES = (FOO, PAIRS)

NUMBERS = (
    "0",
    "7",
    "-12",
    "1.0",
    "5.00",
    "-0.0",
    "2.50",
    "1e3",
    "0.00001",
    "0.001",
    "9223372036854775807",
    "1E+999",
    "1e-999",
)
TEXTS = ("", "x", "É", "12", "a\\b", 'c"d', "\n", "\u2028", "null", "3.5")
ORDINARY = st.one_of(
    st.sampled_from(NUMBERS),
    st.sampled_from(TEXTS).map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["null", "true", "false"]),
)
ODD = st.sampled_from(["-0", '"\\ud800"', "[1]", "NaN", str(2**65), '"\\u00e9"'])
RARELY = st.sampled_from([*[False] * 19, True])
SCALARS = RARELY.flatmap(lambda is_odd: ODD if is_odd else ORDINARY)
"""JSON literals, and occasionally invalid ones."""

ODD_KEYS = st.sampled_from(["null", "1.0", '"1"', '"x"', '"a\\\\b"'])
KEYS = RARELY.flatmap(lambda is_odd: ODD_KEYS if is_odd else st.integers(0, 3).map(str))
WORDS = (
    ("sqlite_type", "sqlite_pk_value", "channel_type", "sqlite_pk_name"),
    ("type", "pv", "type", "pk"),
    ("type", "sqlite_pk_value", "channel_type", "pk"),
)


@st.composite
def notices(draw: st.DrawFn, described: Description) -> bytes:
    """Draw a text that resembles a notification of the table, possibly with an error anywhere."""
    op, old_key, kind, key_names = draw(st.sampled_from(WORDS))
    entries = []
    for _ in range(draw(st.integers(0, 3))):
        word = draw(st.sampled_from(["INSERT", "UPDATE", "DELETE"]))
        names = [name for name in described.names if word != "DELETE" and not draw(RARELY)]
        members = [(name, draw(KEYS if name in described.keys else SCALARS)) for name in names]
        if word == "DELETE" or draw(st.booleans()):
            members.append((old_key, f"[{','.join(draw(KEYS) for _ in described.keys)}]"))
        fields = [(op, f'"{word}"'), *members]
        entries.append(f"{{{','.join(f'{_to_json(name)}:{value}' for name, value in fields)}}}")
    head = [("sender", 0), ("channel", described.table), (kind, "TABLE"), (key_names, list(described.keys))]
    fields = ",".join(f"{_to_json(name)}:{_to_json(value)}" for name, value in head)
    text = f'{{{fields},"payload":[{",".join(entries)}]}}'.encode()
    at, cut = draw(st.integers(0, len(text))), draw(st.integers(0, 2))
    put = draw(st.sampled_from([b"", b'"', b",", b"0", b"\\", b"\xff", b"]"]))
    return text[:at] + put + text[at + cut :] if draw(RARELY) else text


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
