"""Output for scripts."""

from __future__ import annotations

import io
import json

import pytest

from silverfold.jobs.common.console import print_json


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("out", "lines"), [(io.StringIO(), 1), (Terminal(), 8)])
def test_an_object_is_one_line_for_scripts_and_indented_for_people(out: io.StringIO, lines: int) -> None:
    content = {"feed": "börse", "tables": [{"table": "quotes"}]}
    print_json(content, out)
    assert json.loads(out.getvalue()) == content
    assert out.getvalue().count("\n") == lines
    assert "börse" in out.getvalue()
