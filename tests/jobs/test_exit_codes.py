"""conf/README.md's table of exit codes: every command is in it, with the codes and the ``--json`` that its code has."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer

from silverfold.jobs.cli import JOBS

PAGE = (Path(__file__).parents[2] / "conf" / "README.md").read_text(encoding="utf-8")
SECTION = PAGE[PAGE.index("## Exit codes") : PAGE.index("## Secrets")]
ROWS = {
    name: [cell.strip() for cell in cells.split("|")[:3]]
    for name, cells in re.findall(r"^\| `([^`]+)` \|(.*)\|$", SECTION, re.MULTILINE)
}


def commands() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield every command by its words, and its function."""
    for name, job in JOBS.items():
        module, attribute = job.target.split(":")
        found = getattr(import_module(module), attribute)
        if not isinstance(found, typer.Typer):
            yield name, found
        elif name == "simulate":  # each connector has its own, and they end alike
            yield name, found.registered_callback.callback
        else:
            for each in found.registered_commands:
                yield f"{name} {each.name or each.callback.__name__}", each.callback


COMMANDS = dict(commands())


def codes_of(function: Callable[..., Any], seen: frozenset[Callable[..., Any]] = frozenset()) -> set[int]:
    """Return the codes with which a command, or a function of the commands that it calls, ends of itself."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    found = set()
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        if ast.unparse(call.func) == "typer.Exit":
            found |= {each.value for each in ast.walk(call) if isinstance(each, ast.Constant)}
        called = inspect.getmodule(function).__dict__.get(ast.unparse(call.func))
        if inspect.isfunction(called) and called.__module__.startswith("silverfold.jobs") and called not in seen:
            found |= codes_of(called, seen | {function, called})
    return found


def test_the_table_has_every_command():
    assert list(ROWS) == sorted(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_ends_as_the_table_says(name: str):
    negative, unavailable, as_json = ROWS[name]
    assert (bool(negative), bool(unavailable)) == (1 in (codes := codes_of(COMMANDS[name])), 3 in codes)
    assert bool(as_json) == ("as_json" in inspect.signature(COMMANDS[name]).parameters)
    assert codes <= {1, 2, 3, 130}
