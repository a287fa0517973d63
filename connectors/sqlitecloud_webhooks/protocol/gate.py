"""Acceptance of requests: the checks of a request's head, then of its body, and the refusals.

Nothing here reads a socket. Statuses follow RFC 9110: 401 for a wrong secret, 404 and 405 for another path or method,
413 and 415 for an unacceptable body.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, NamedTuple

from silverfold.connectors.sqlitecloud_webhooks.protocol.signing import Signing


class Head(NamedTuple):
    """The head of a request."""

    method: str
    path: str
    headers: Mapping[str, str]
    """Accessed by lower-case names."""

    def is_at_most(self, length: int) -> bool:
        """Return whether the head announces a body of at most ``length`` bytes."""
        value = self.headers.get("content-length", "")
        return value.isascii() and value.isdigit() and len(value) < 20 and int(value) <= length


class Refusal(NamedTuple):
    """The reason for refusing a request."""

    status: HTTPStatus
    reason: str
    headers: tuple[tuple[str, str], ...] = ()
    is_final: bool = True
    """It was sent to the webhook path and would be refused again, so a change may be lost."""


TOO_LARGE: Final = Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the body is longer than max_body_bytes")
TOO_SLOW: Final = Refusal(HTTPStatus.REQUEST_TIMEOUT, "the body did not come in time", is_final=False)
NOT_LANDED: Final = Refusal(
    HTTPStatus.SERVICE_UNAVAILABLE, "it could not be landed", (("Retry-After", "10"),), is_final=False
)
_NOT_HERE: Final = Refusal(HTTPStatus.NOT_FOUND, "webhooks are posted elsewhere", is_final=False)
_NOT_POST: Final = Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "webhooks are posted", (("Allow", "POST"),), is_final=False)
_CODED: Final = Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body is compressed", (("Accept-Encoding", "identity"),))
_UNSIGNED: Final = Refusal(HTTPStatus.UNAUTHORIZED, "no header shows that the secret is known")
_WRONG: Final = Refusal(HTTPStatus.UNAUTHORIZED, "the secret is wrong")


@dataclass(frozen=True)
class Gate:
    """The requirements for requests.

    Args:
        signing: The proof of the secret; None requires none.
        max_body_bytes: Longest body to accept.
    """

    path: str
    signing: Signing | None
    max_body_bytes: int

    def check_head(self, head: Head, secret: str) -> Refusal | None:
        """Return the refusal of a request before its body is read, or None."""
        if head.path != self.path:
            return _NOT_HERE
        if head.method != "POST":
            return _NOT_POST
        if self.signing is not None:
            signature = head.headers.get(self.signing.header.lower())
            if signature is None:
                return _UNSIGNED
            if not self.signing.is_of_body and not self.signing.is_right(signature, b"", secret):
                return _WRONG
        if head.headers.get("content-encoding", "identity").lower() != "identity":
            return _CODED
        announced = "content-length" in head.headers
        return TOO_LARGE if announced and not head.is_at_most(self.max_body_bytes) else None

    def check_body(self, head: Head, body: bytes, secret: str) -> Refusal | None:
        """Return the refusal of a request once its body is read, or None."""
        if len(body) > self.max_body_bytes:
            return TOO_LARGE
        if self.signing is None or not self.signing.is_of_body:
            return None
        right = self.signing.is_right(head.headers[self.signing.header.lower()], body, secret)
        return None if right else _WRONG
