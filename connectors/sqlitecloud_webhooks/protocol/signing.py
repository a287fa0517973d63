"""How a request proves knowledge of the webhook's secret.

``plain``        the header is the prefix and the secret itself
``hmac-sha256``  the header is the prefix and the HMAC (RFC 2104) with SHA-256 of the body as sent, in hex or base64
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass
from typing import Literal, TypeAlias

Scheme: TypeAlias = Literal["plain", "hmac-sha256"]
Encoding: TypeAlias = Literal["hex", "base64"]


@dataclass(frozen=True)
class Signing:
    """The header that proves the secret, and its content.

    Args:
        header: Its name, case-insensitive.
        encoding: The encoding of the HMAC.
        prefix: Text before the proof, such as ``sha256=`` or ``Bearer ``.
    """

    header: str
    scheme: Scheme = "hmac-sha256"
    encoding: Encoding = "hex"
    prefix: str = ""

    @property
    def is_of_body(self) -> bool:
        """Whether checking the header requires the body."""
        return self.scheme != "plain"

    def sign(self, body: bytes, secret: str) -> str:
        """Return the header value for a body. It may contain the secret: do not log or store it."""
        if not self.is_of_body:
            return self.prefix + secret
        digest = hmac.digest(secret.encode(), body, hashlib.sha256)
        return self.prefix + (digest.hex() if self.encoding == "hex" else base64.b64encode(digest).decode())

    def is_right(self, found: str, body: bytes, secret: str) -> bool:
        """Return whether a header is right for a body; hexadecimal digits in either case.

        The time taken does not reveal where it differs.
        """
        if self.is_of_body and self.encoding == "hex":
            found = found[: len(self.prefix)] + found[len(self.prefix) :].lower()
        return hmac.compare_digest(found.encode(errors="surrogateescape"), self.sign(body, secret).encode())
