"""Validates raw settings against a model and reports every error in terms of the settings file.

Strict: text is not a number, a number is not a boolean. Each of pydantic's errors becomes one `ConfigError` with file,
key, what was found and what is allowed; the first is raised and carries the others.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from silverfold.conf.errors import ConfigError

Model = TypeVar("Model", bound=BaseModel)
Path = tuple[str, ...]
"""Names from the top of a settings file down to a key."""


_WORDS = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "text in quotes",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
}
"""Descriptions of allowed values in TOML terms, by pydantic's error type."""


_UNKNOWN_KEYS = frozenset({"extra_forbidden", "unexpected_keyword_argument"})
"""Pydantic's error types for a key that a model, or a dataclass, does not have."""


class _Unshown:
    """Placeholder with a description in place of the value found."""

    def __init__(self, words: str) -> None:
        self._words = words

    def __repr__(self) -> str:
        return self._words


HIDDEN = _Unshown("a value that is not shown")
"""Replaces a value that may be a secret."""
WHOLE = _Unshown("these settings together")
"""Replaces the table checked by a rule across keys, which would be too long to read."""
_UNKNOWN = _Unshown("a key that is not known")
_NO_TABLE = _Unshown("what is no table")
_NO_TEXT = _Unshown("what is no text")
"""Replace values that may be secrets: of a misspelt key, or of the wrong type."""


def validated(
    model: type[Model], raw: Mapping[str, Any], *, file: str | Callable[[Path], str], prefix: str = ""
) -> Model:
    """Return ``raw`` as a model.

    Args:
        raw: A parsed TOML table.
        file: The file to name in errors, or a function that returns it for a path (prefix included).
        prefix: Dotted key of ``raw`` inside its file, such as ``tables.quotes``; empty for the whole file.

    Raises:
        ConfigError: At least one key is invalid. ``others`` has the further errors.
    """
    try:
        return model.model_validate_json(json.dumps(raw, default=str), strict=True)
    except ValidationError as error:
        findings = error.errors(include_url=False)
    above = tuple(prefix.split(".")) if prefix else ()
    file_of = file if callable(file) else lambda _path: file
    raise together(_translated(model, raw, findings, above, file_of))


def together(mistakes: Iterable[ConfigError]) -> ConfigError:
    """Return the first error carrying the others, each listed once and none nested."""
    first, *rest = [each for mistake in mistakes for each in (mistake, *mistake.others)]
    for each in rest:
        each.others = ()
    first.others = tuple(rest)
    return first


def _translated(
    model: type[BaseModel],
    raw: Mapping[str, Any],
    findings: Iterable[ErrorDetails],
    above: Path,
    file_of: Callable[[Path], str],
) -> list[ConfigError]:
    """Return one error per key: alternatives of a union are merged into one."""
    allowed: dict[Path, list[str]] = {}
    found: dict[Path, object] = {}
    for finding in findings:
        path = _path(finding, raw)
        allowed.setdefault(path, []).append(_allowed(model, finding, path))
        hidden = finding["type"] == "secret" or found.get(path) is HIDDEN
        found[path] = HIDDEN if hidden else _found(finding)
    return [
        ConfigError(
            file=file_of(above + path),
            key=".".join(above + path) or "the whole file",
            found=found[path],
            allowed=" or ".join(dict.fromkeys(allowed[path])),
        )
        for path in allowed
    ]


def _path(finding: ErrorDetails, raw: Any) -> Path:
    """Return the error's path without the names of union branches that pydantic inserts."""
    path: Path = ()
    for part in finding["loc"]:
        try:
            raw = raw[part]
        except (KeyError, IndexError, TypeError):
            if finding["type"] != "missing" or part != finding["loc"][-1]:
                continue
        path += (str(part),)
    return path


def _found(finding: ErrorDetails) -> object:
    match finding["type"], finding["input"]:
        case "missing", _:
            return None
        case kind, _ if kind in _UNKNOWN_KEYS:
            return _UNKNOWN
        case "dict_type" | "model_type" | "model_attributes_type", _:
            return _NO_TABLE
        case "string_type", dict() | list():
            return _NO_TEXT
    return WHOLE if finding["type"] == "value_error" and isinstance(finding["input"], dict) else finding["input"]


def _allowed(model: type[BaseModel], finding: ErrorDetails, path: Path) -> str:
    """Return a description of the allowed values, using pydantic's message where it is clear."""
    if finding["type"] in _UNKNOWN_KEYS:
        return _names_like(path[-1], _names_at(model, path[:-1]))
    if finding["type"] == "missing":
        return "a value: this setting has no default"
    if finding["type"] in _WORDS:
        return _WORDS[finding["type"]]
    message = finding["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return message[:1].lower() + message[1:] if message[:2].istitle() else message


def _names_like(name: str, names: list[str]) -> str:
    """Return a message that suggests the nearest name, then lists all names."""
    near = difflib.get_close_matches(name, names, n=1)
    guess = f"no such key, did you mean {near[0]}? " if near else "no such key. "
    return f"{guess}Known here: {', '.join(sorted(names)) or 'none'}"


def _names_at(model: type[BaseModel], path: Path) -> list[str]:
    """Return the keys that the model allows at a path."""
    models: list[type] = [model]
    for part in path:
        fields = [annotation for each in models for name, annotation in _keys(each) if name == part]
        # A part that is not a field is a free key of a table; the models of its values are in `models` already.
        models = [found for field in fields for found in _models_in(field)] if fields else models
    return [name for each in models for name, _annotation in _keys(each)]


def _keys(model: type) -> list[tuple[str, Any]]:
    """Return the names in the file of a model's, or a dataclass's, fields, with their annotations."""
    if issubclass(model, BaseModel):
        return [(field.alias or name, field.annotation) for name, field in model.model_fields.items()]
    return list(get_type_hints(model).items())


def _models_in(annotation: Any) -> list[type]:
    """Return the models and dataclasses in an annotation, at any depth."""
    if isinstance(annotation, type) and (issubclass(annotation, BaseModel) or is_dataclass(annotation)):
        return [annotation]
    return [found for argument in get_args(annotation) for found in _models_in(argument)]
