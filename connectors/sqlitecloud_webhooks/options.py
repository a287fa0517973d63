"""The connector's own settings: a feed's ``options`` and what its ``tables`` may say.

How the vendor signs requests is not documented: those settings say what a feed's own webhook does.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from silverfold.conf.model import PathText, SourceName, Strict, Table, expanded
from silverfold.conf.names import caseless
from silverfold.conf.secrets import Secret
from silverfold.conf.text import without_controls
from silverfold.connectors.base import Feed
from silverfold.connectors.sqlitecloud.options import BlobForm, ColumnName, TypeName
from silverfold.connectors.sqlitecloud_webhooks.protocol.signing import Encoding, Scheme, Signing

LARGEST = 64 << 20


class WebhookOptions(Strict):
    """A feed's ``options``.

    ``address`` is where the receiver listens, ``host:port``; by default ``127.0.0.1:8090``.
    ``connectors/sqlitecloud_webhooks/PROTOCOL.md`` explains all of it.
    """

    database: SourceName = Field(min_length=1)
    """The database whose tables the feed has. Webhooks of another one land, and change no table."""
    path: Annotated[str, expanded('/[!"$->@-~]*', "a path: / first, without ?, #, spaces or letters beyond ASCII")] = (
        "/"
    )
    """Where webhooks are posted to, without a query, escaped as in a URL or not. Any other path is answered 404."""
    secret: Secret | None = None
    """The webhook's secret, shared with the vendor: a reference, read anew for each request."""
    header: Annotated[str, expanded("[A-Za-z0-9-]*", "the name of a header: letters, digits and -")] = ""
    """With ``secret``: the header by which a request shows that it knows the secret."""
    scheme: Scheme = "hmac-sha256"
    """Content of the header: the HMAC of the body as sent, or with ``plain`` the secret itself."""
    encoding: Encoding = "hex"
    """Encoding of the HMAC: ``hex`` or ``base64``."""
    prefix: Annotated[str, AfterValidator(without_controls("text"))] = ""
    """Text before it in the header, such as ``sha256=`` or ``Bearer ``."""
    insecure: bool = False
    """Instead of ``secret``: accept what anybody posts."""
    max_body_bytes: int = Field(default=1 << 20, ge=1 << 10, le=LARGEST)
    """Longest body to accept."""
    timeout: Annotated[float, Field(gt=0, le=3_600, allow_inf_nan=False)] = 30.0
    """Seconds within which a request is received and landed."""
    certificate: PathText = ""
    """PEM file, for https."""
    certificate_key: PathText = ""
    """PEM file of its key, where the certificate's file has none; without a pass phrase."""
    insert_absent: Literal["null", "keep", "error"] = "null"
    """Columns that an insert does not carry are NULL (``null``), or stay as they were where the row exists already
    (``keep``), or hold the table (``error``)."""
    blob: BlobForm = "error"
    """How webhooks spell blobs: ``base64``, ``hex`` or, right for UTF-8 only, ``text``. With ``error``, a table with
    one waits."""

    @property
    def row_settings(self) -> dict[str, str | list[str]]:
        """Return what of the settings says which rows the tables have."""
        return {"insert_absent": self.insert_absent, "blob": self.blob}

    @property
    def signing(self) -> Signing | None:
        """How requests are signed; None where anybody's is taken."""
        return None if self.secret is None else Signing(self.header, self.scheme, self.encoding, self.prefix)

    @model_validator(mode="after")
    def _is_guarded_as_asked(self) -> WebhookOptions:
        if (self.secret is None) != self.insecure:
            raise ValueError("secret, or insecure = true to take what anybody posts; not both")
        if (self.secret is None) != (not self.header):
            raise ValueError("secret and header together: which header shows that a request knows the secret")
        if self.certificate_key and not self.certificate:
            raise ValueError("certificate_key with certificate")
        return self


class WebhookTable(Table):
    """One silver table."""

    source: SourceName = ""
    """The table's name at the source; by default the table's own name."""
    keys: tuple[str, ...] = ()
    """Columns that name a row, at least one: no webhook tells them."""
    types: dict[ColumnName, TypeName] = Field(default_factory=dict)
    """Types of columns, by name: ``bigint``, ``double``, ``string``, ``binary``, ``boolean`` or ``decimal(precision,
    scale)``. Each key needs one: 1 and '1' are two keys. Other columns are strings without. A column named here exists
    from the start."""

    @model_validator(mode="after")
    def _names_its_rows(self) -> WebhookTable:
        if not self.keys:
            raise ValueError("keys: no webhook tells which columns name a row")
        floats = [name for name in self.keys if self.types.get(name) == "double"]
        if floats:
            raise ValueError(f"keys of any type but double, unlike {floats[0]}: 0.0 and -0.0 are one number")
        names = [caseless(name) for name in (*self.keys, *(set(self.types) - set(self.keys)))]
        if len(set(names)) < len(names):
            raise ValueError("keys and types name each column once, and in one spelling")
        untyped = [name for name in self.keys if name not in self.types]
        if untyped:
            raise ValueError(f"types of all keys: {untyped[0]} has none, such as bigint or string")
        return self


WebhookFeed: TypeAlias = Feed[WebhookOptions, WebhookTable]
"""A feed of this connector."""
