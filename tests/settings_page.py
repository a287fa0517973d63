"""Writes the connectors' sections of conf/README.md, from the docstrings of their settings models.

A section has the docstring of ``Options`` without its first paragraph, a row for each field of the two models, and the
docstring of ``TableOptions`` without its first paragraph. The docstring below a field is its meaning::

    .venv/bin/python -m tests.settings_page
"""

import ast
import inspect
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from silverfold.connectors.base import Connector
from silverfold.connectors.registry import CONNECTORS, find_connector

PAGE = Path(__file__).parents[1] / "conf" / "README.md"
BEGIN = "<!-- connectors: written by tests.settings_page from the options of each -->\n\n"
END = "<!-- connectors: end -->\n"


def with_sections(page: str) -> str:
    """Return the page with the sections of all connectors in the registry between its markers."""
    before, _, rest = page.partition(BEGIN)
    _, _, behind = rest.partition(END)
    return f"{before}{BEGIN}{''.join(section(find_connector(name)) for name in CONNECTORS)}{END}{behind}"


def section(connector: Connector) -> str:
    """Return the section of one connector."""
    rows = [*rows_of(connector.Options, "options."), *rows_of(connector.TableOptions, "tables.<table>.")]
    table = ["| key | default | meaning |", "|---|---|---|", *rows]
    parts = [remarks(connector.Options), "\n".join(table), remarks(connector.TableOptions)]
    return "\n\n".join([f'### connector = "{connector.name}"', *filter(None, parts)]) + "\n\n"


def remarks(model: type[BaseModel]) -> str:
    """Return the docstring of a model without its first paragraph."""
    return (inspect.getdoc(model) or "").partition("\n\n")[2].replace("``", "`")


def rows_of(model: type[BaseModel], above: str) -> Iterator[str]:
    """Yield a row for each field that the model itself declares."""
    meanings = docstrings(model)
    for attribute, field in model.model_fields.items():
        if attribute in model.__annotations__:
            key, default = above + (field.alias or attribute), shown(field.get_default(call_default_factory=True))
            yield f"| `{key}` | {default} | {' '.join(meanings[attribute].split()).replace('``', '`')} |"


def docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings below the fields of a class. (Pydantic reads them too, but at every start.)"""
    (definition,) = ast.parse(inspect.getsource(model)).body
    assert isinstance(definition, ast.ClassDef)
    return {
        statement.target.id: below.value.value
        for statement, below in pairwise(definition.body)
        if isinstance(statement, ast.AnnAssign) and isinstance(below, ast.Expr)
    }


def shown(default: Any) -> str:
    """Return a default as the page shows it."""
    return "none" if default is PydanticUndefined else f"`{json.dumps(default)}`"


if __name__ == "__main__":
    PAGE.write_text(with_sections(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
