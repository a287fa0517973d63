"""The connector's own settings: a feed's ``options`` and what its ``tables`` may say.

How the vendor signs requests is not documented: those settings say what a feed's own webhook does.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from silverfold.conf.model import SourceName, Strict, Table, expanded
from silverfold.conf.names import folded
from silverfold.conf.secrets import Secret
from silverfold.connectors.sqlitecloud.options import BlobForm, ColumnName, TypeName
from silverfold.connectors.sqlitecloud_webhooks.protocol.signing import Encoding, Scheme, Signing

LARGEST = 64 << 20


class WebhookOptions(Strict):
    """A feed's ``options``.

    Args:
        database: The database whose tables the feed has. Webhooks of another one land, and change no table.
        path: Where webhooks are posted to, without a query, escaped as in a URL or not. A request for any other is
            answered 404.
        secret: The webhook's secret, shared with the vendor.
        header: The header by which a request shows that it knows the secret.
        scheme: What the header has: the secret itself, or a signature of the body by it.
        encoding: Of the signature.
        prefix: What stands before it in the header.
        insecure: Take what anybody posts. Instead of ``secret``.
        max_body_bytes: Longest body to accept.
        timeout: Seconds within which a request is received and landed.
        certificate, certificate_key: Files in PEM, for https. Without a key of its own, the certificate's file has it.
        insert_absent: What an insert does not carry is NULL (``null``), stays as it was where the row is there already
            (``keep``), or holds the table (``error``).
        blob: How webhooks spell blobs; ``error``: a table with one waits until this is set.
    """

    database: str = Field(min_length=1)
    path: Annotated[str, expanded('/[!"$->@-~]*', "a path: / first, without ?, #, spaces or letters beyond ASCII")] = (
        "/"
    )
    secret: Secret | None = None
    header: Annotated[str, expanded("[A-Za-z0-9-]*", "the name of a header: letters, digits and -")] = ""
    scheme: Scheme = "hmac-sha256"
    encoding: Encoding = "hex"
    prefix: str = ""
    insecure: bool = False
    max_body_bytes: int = Field(default=1 << 20, ge=1 << 10, le=LARGEST)
    timeout: Annotated[float, Field(gt=0, le=3_600, allow_inf_nan=False)] = 30.0
    certificate: str = ""
    certificate_key: str = ""
    insert_absent: Literal["null", "keep", "error"] = "null"
    blob: BlobForm = "error"

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
    """One silver table.

    Args:
        source: The table's name at the source; empty for the silver table's own name.
        keys: Columns that name a row: no webhook tells them.
        types: Types of columns: bigint, double, string, binary, boolean or decimal(precision, scale). Each key has one:
            1 and '1' are two keys. Any other column without is a string. A column named here is there from the start.
    """

    source: SourceName = ""
    types: dict[ColumnName, TypeName] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _names_its_rows(self) -> WebhookTable:
        if not self.keys:
            raise ValueError("keys: no webhook tells which columns name a row")
        floats = [name for name in self.keys if self.types.get(name) == "double"]
        if floats:
            raise ValueError(f"keys of any type but double, unlike {floats[0]}: 0.0 and -0.0 are one number")
        names = [folded(name) for name in (*self.keys, *(set(self.types) - set(self.keys)))]
        if len(set(names)) < len(names):
            raise ValueError("keys and types name each column once, and in one spelling")
        untyped = [name for name in self.keys if name not in self.types]
        if untyped:
            raise ValueError(f"types of all keys: {untyped[0]} has none, such as bigint or string")
        return self
