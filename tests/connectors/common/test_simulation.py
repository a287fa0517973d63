"""Files of tables that simulators read."""

from __future__ import annotations

from pathlib import Path

import pytest

from silverfold.conf.errors import ConfigError
from silverfold.connectors.common.simulation import read_table_file


def test_a_csv_file_has_names_inferred_types_and_nulls(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text('id,name,of\n1,a,NA\n2,,\n3,"",null\n')
    assert read_table_file(file).to_pydict() == {"id": [1, 2, 3], "name": ["a", None, ""], "of": ["NA", None, "null"]}


@pytest.mark.parametrize(
    ("name", "octets", "line"),
    [
        ("t.csv", "id,n\n1,x\n".encode("utf-16"), "file"),
        ("t.csv", b"id,\xff\n1,x\n", "file"),
        ("t.csv", b"id,\xe4\n1,\xe4\n", "file"),
        ("t.csv", b"id,n\n1,ok\n2,\xff\n", "n: found 'other bytes', allowed: text in UTF-8"),
        ("t.csv", b"", "file"),
        ("t.csv", b"id,id\n1,2\n", "columns: found 'id'"),
        ("t.csv", b"id;name\n1;a\n", "columns: found 'id;name', allowed: columns separated by commas, not ';'"),
        ("t.csv", b"id,\n1,2\n", "columns: found ''"),
        ("t.parquet", b"none", "file"),
        ("t.txt", b"id\n1\n", "found '.txt'"),
    ],
)
def test_what_is_no_table_is_one_clear_line(tmp_path: Path, name: str, octets: bytes, line: str) -> None:
    file = tmp_path / name
    file.write_bytes(octets)
    with pytest.raises(ConfigError, match=line):
        read_table_file(file)
