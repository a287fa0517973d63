"""How a request shows that it comes from whoever holds the webhook's secret.

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
    """What stands in which header.

    Args:
        header: Its name; case does not matter.
        encoding: Of the HMAC.
        prefix: What stands before it, such as ``sha256=`` or ``Bearer ``.
    """

    header: str
    scheme: Scheme = "hmac-sha256"
    encoding: Encoding = "hex"
    prefix: str = ""

    @property
    def is_of_body(self) -> bool:
        """Only with the body can the header be checked."""
        return self.scheme != "plain"

    def sign(self, body: bytes, secret: str) -> str:
        """Return what the header is for a body. It may be the secret: do not log or keep it."""
        if not self.is_of_body:
            return self.prefix + secret
        digest = hmac.digest(secret.encode(), body, hashlib.sha256)
        return self.prefix + (digest.hex() if self.encoding == "hex" else base64.b64encode(digest).decode())

    def is_right(self, found: str, body: bytes, secret: str) -> bool:
        """Tell whether a header is right for a body. How long it takes does not tell where it differs."""
        return hmac.compare_digest(found.encode(errors="surrogateescape"), self.sign(body, secret).encode())
