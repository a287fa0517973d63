"""Settings of a connection: addresses of the cluster, TLS and token. No repr shows a secret.

::

    hstream://host[:port][,host[:port]…]      plain text
    hstreams://host[:port][,host[:port]…]     TLS

The port is 6570 by default. IPv6 hosts have brackets. Nothing here needs the connector's extra.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, NamedTuple, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from silverfold.conf.model import PathText
from silverfold.conf.text import check_host
from silverfold.connectors.common.transport import Address, parse_address

PORT: Final = 6570
TIMEOUT: Final = 5.0
_FORM: Final = "hstream://host[:port], or hstreams:// for TLS; more hosts follow after commas"
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_HOST: Final = re.compile(r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<host>[^\[\]@:/?#\s]*))(?::(?P<port>[^:/@]*))?")


class InvalidUrl(ValueError):
    """An invalid URL. ``kind`` is ``missing_scheme``, ``unknown_scheme``, ``no_host``, ``bad_host`` or ``bad_port``."""

    def __init__(self, kind: str, allowed: str) -> None:
        self.kind = kind
        super().__init__(allowed)


class Url(NamedTuple):
    """A parsed URL: whether by TLS, and each address once, in the order given."""

    is_encrypted: bool
    addresses: Sequence[Address]


def parse_url(text: str) -> Url:
    """Parse a cluster's URL. White space around it and around hosts, and one trailing slash, are dropped.

    Hosts are in small letters.

    Raises:
        InvalidUrl: It is invalid. The message says what is allowed and shows no part of it.
    """
    form = _SCHEME.fullmatch(text.strip())
    if form is None:
        raise InvalidUrl("missing_scheme", _FORM)
    scheme, hosts = form[1].lower(), form[2].removesuffix("/")
    if scheme not in ("hstream", "hstreams"):
        raise InvalidUrl("unknown_scheme", _FORM)
    addresses = tuple(dict.fromkeys(_address(each.strip()) for each in hosts.split(",")))
    return Url(is_encrypted=scheme == "hstreams", addresses=addresses)


def _address(text: str) -> Address:
    form = _HOST.fullmatch(text)
    if form is None:
        raise InvalidUrl("bad_host", f"hosts without user, path or white space, IPv6 in brackets: {_FORM}")
    host, port = (form["ipv6"] or form["host"]).lower(), form["port"]
    if not host:
        raise InvalidUrl("no_host", f"a host everywhere: {_FORM}")
    try:
        check_host(host)
    except ValueError as error:
        raise InvalidUrl("bad_host", str(error)) from None
    if port is None:
        return Address(host, PORT)
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 1 << 16):
        raise InvalidUrl("bad_port", "a port from 1 to 65535 after the colon")
    return Address(host, int(port))


def basic_token(user: str, password: str) -> str:
    """Return the token of a user, as the server's setting ``tokens`` lists it."""
    return base64.b64encode(f"{user}:{password}".encode()).decode()


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Tls(_Frozen):
    """Files for TLS, PEM each. With a client certificate the server can authenticate this client."""

    root_certificate: PathText | None = None
    """Trusted authorities; None for the system's."""
    client_certificate: PathText | None = None
    client_certificate_key: PathText | None = None

    @model_validator(mode="after")
    def _key_with_certificate(self) -> Self:
        if (self.client_certificate is None) != (self.client_certificate_key is None):
            raise ValueError("client_certificate and client_certificate_key together")
        return self


def _known_url(text: str) -> str:
    parse_url(text)
    return text


def _token(secret: SecretStr) -> SecretStr:
    if not re.fullmatch(r"[A-Za-z0-9+/=_-]+", secret.get_secret_value()):
        raise ValueError("base64 of user:password")
    return secret


def _targets(advertised: Mapping[str, str]) -> Mapping[str, str]:
    return {str(parse_address(found)).lower(): str(parse_address(used)) for found, used in advertised.items()}


class ConnectionSettings(_Frozen):
    """Where a cluster is, and how to connect. Its repr hides the token."""

    url: Annotated[str, AfterValidator(_known_url)]
    tls: Tls | None = None
    """Only with ``hstreams``, which trusts the system's authorities if this is None."""
    token: Annotated[SecretStr, AfterValidator(_token)] | None = None
    """Base64 of ``user:password`` (`basic_token`). Sent over TLS only."""
    token_without_tls: bool = False
    """Send the token in plain text too."""
    advertised: Annotated[Mapping[str, str], AfterValidator(_targets)] = Field(default_factory=dict)
    """Addresses to use, as ``host:port``, in place of those that the nodes advertise."""
    timeout: Annotated[float, Field(gt=0, le=86_400)] = TIMEOUT
    """Seconds for each call that has one answer."""

    @model_validator(mode="after")
    def _tls_by_scheme(self) -> Self:
        encrypted = parse_url(self.url).is_encrypted
        if self.tls is not None and not encrypted:
            raise ValueError("hstreams://, since certificates are given")
        if self.token is not None and not encrypted and not self.token_without_tls:
            raise ValueError("token only with hstreams://, or with token_without_tls")
        return self

    @property
    def is_encrypted(self) -> bool:
        """Whether the cluster is reached over TLS."""
        return parse_url(self.url).is_encrypted

    @property
    def seeds(self) -> Sequence[str]:
        """The addresses of the URL, as gRPC's targets."""
        return [str(each) for each in parse_url(self.url).addresses]
