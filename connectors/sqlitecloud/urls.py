"""Reads connection strings: ``sqlitecloud://[user:password@]host[:port][/database][?key=value&...]``.

What is wrong with one is a ValueError that says what is allowed, and never shows a value: it may be a secret.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import unquote_to_bytes

from pydantic import SecretStr, ValidationError

from conf.text import check_host
from connectors.sqlitecloud.settings import PORT, ApiKey, ConnectionSettings, Credentials, Password, Tls, Token

_FORM: Final = re.compile(
    r"sqlitecloud://(?:(?P<login>[^@/?#]*)@)?(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<host>[^\[\]@:/?#]+))"
    r"(?::(?P<port>[0-9]{1,5}))?(?:/(?P<database>[^/?#]*))?(?:\?(?P<query>[^#]*))?"
)
_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_Made = TypeVar("_Made")
_TRUTH: Final = {"0": False, "1": True, "false": False, "true": True}


def _truth(text: str) -> bool:
    if text.lower() not in _TRUTH:
        raise ValueError("0, 1, true or false")
    return _TRUTH[text.lower()]


def _count(text: str) -> int:
    if not re.fullmatch("[0-9]{1,10}", text):
        raise ValueError("a whole number")
    return int(text)


def _seconds(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", text):
        raise ValueError("a number of seconds")
    return float(text)


_KEYS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "apikey": ("apikey", SecretStr),
    "token": ("token", SecretStr),
    "timeout": ("timeout", _seconds),
    "compression": ("compression", _truth),
    "zerotext": ("zero_text", _truth),
    "noblob": ("no_blob", _truth),
    "maxdata": ("max_data", _count),
    "maxrows": ("max_rows", _count),
    "maxrowset": ("max_rowset", _count),
    "memory": ("memory", _truth),
    "create": ("create", _truth),
    "non_linearizable": ("non_linearizable", _truth),
    "nonlinearizable": ("non_linearizable", _truth),
    "insecure": ("insecure", _truth),
    "no_verify_certificate": ("no_verify", _truth),
    "root_certificate": ("root_certificate", str),
    "client_certificate": ("client_certificate", str),
    "certificate": ("client_certificate", str),
    "client_certificate_key": ("client_certificate_key", str),
    "certificate_key": ("client_certificate_key", str),
}
"""What each key sets, and how its value is read. The official clients do not agree on all names."""


def parse_connection_string(text: str, *, credentials: Credentials | None = None) -> ConnectionSettings:
    """Return what a connection string says.

    The keys are those of the official clients, in letters of either case. ``timeout`` is in seconds. Compression is on
    unless set, or the host is this machine. A ``+`` stands for itself.

    Args:
        credentials: Those to use; the string must then have none.

    Raises:
        ValueError: Something is wrong or unknown, or there are two kinds of credentials, or none.
    """
    form = _FORM.fullmatch(text)
    if form is None:
        raise ValueError("sqlitecloud://[user:password@]host[:port][/database][?key=value&...], percent-encoded")
    options = _options(form["query"] or "")
    host = form["ipv6"] or _decoded("host", form["host"])
    check_host(host)
    given = {
        "host": host,
        "port": int(form["port"]) if form["port"] else PORT,
        "credentials": _credentials(form["login"], options, credentials),
        "database": _decoded("database", form["database"]) if form["database"] else None,
        "tls": _tls(options),
    }
    return _checked(lambda: ConnectionSettings(**{"compression": not _is_loopback(host), **given, **options}))


def _options(query: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in query.split("&") if query else ():
        name, _, value = part.partition("=")
        field, read = _KEYS.get(name.lower(), ("", str))
        if not field:
            raise ValueError(_known_keys(name.lower()))
        if field in found:
            raise ValueError(f"{name.lower()} once only, under one of its names")
        try:
            found[field] = read(_decoded(name.lower(), value))
        except ValueError as error:
            raise ValueError(f"{name.lower()}: {error}") from None
    return found


def _known_keys(name: str) -> str:
    """Say which keys there are, without showing what stands for one: it may be the rest of a secret with an ``&``."""
    near = difflib.get_close_matches(name, _KEYS, n=1)
    return f"known keys only{f', did you mean {near[0]}?' if near else ':'} {', '.join(sorted(_KEYS))}"


def _credentials(login: str | None, options: dict[str, Any], others: Credentials | None) -> Credentials:
    """Return the only credentials there are, and take them out of the options."""
    apikey, token = options.pop("apikey", None), options.pop("token", None)
    kinds: list[Callable[[], Credentials]] = []
    if others is not None:
        kinds.append(lambda: others)
    if login is not None:
        kinds.append(lambda: _password(login))
    if apikey is not None:
        kinds.append(lambda: ApiKey(secret=apikey))
    if token is not None:
        kinds.append(lambda: Token(secret=token))
    if len(kinds) != 1:
        raise ValueError("one kind of credentials: user:password@, apikey or token")
    return _checked(kinds[0])


def _password(login: str) -> Password:
    user, colon, password = login.partition(":")
    if not colon:
        raise ValueError("a password behind the user: user:password@")
    return Password(user=_decoded("user", user), secret=SecretStr(_decoded("password", password)))


def _tls(options: dict[str, Any]) -> Tls | None:
    """Return how the connection is encrypted, and take what says so out of the options."""
    insecure, no_verify = options.pop("insecure", False), options.pop("no_verify", False)
    files = {
        name: options.pop(name, None) for name in ("root_certificate", "client_certificate", "client_certificate_key")
    }
    if files["client_certificate_key"] and not files["client_certificate"]:
        raise ValueError("client_certificate_key only with client_certificate")
    return None if insecure else Tls(verify=not no_verify, **files)


def _decoded(name: str, text: str) -> str:
    """Return a percent-encoded text. Raises ValueError that does not show it."""
    if _ESCAPE.search(text):
        raise ValueError(f"{name}: two hexadecimal digits behind each %")
    try:
        decoded = unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise ValueError(f"{name}: UTF-8, percent-encoded") from None
    if not decoded:
        raise ValueError(f"{name}: a value")
    return decoded


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _checked(make: Callable[[], _Made]) -> _Made:
    """Return what a model makes of its values, or say what is wrong with them without showing them."""
    try:
        return make()
    except ValidationError as error:
        findings = error.errors(include_url=False, include_input=False, include_context=False)
    wrong = [f"{finding['loc'][0]}: {finding['msg'].removeprefix('Value error, ')}" for finding in findings]
    raise ValueError("; ".join(wrong))
