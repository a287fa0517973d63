"""Says which requests are taken: what is asked of a request's head, then of its body, and by what it is refused.

Nothing here reads a socket. Answers are those of RFC 9110: 401 of a wrong secret, 404 and 405 of another path or
method, 411 to 415 of a body that is not taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, NamedTuple

from connectors.sqlitecloud_webhooks.signing import Signing


class Head(NamedTuple):
    """What a request says before its body."""

    method: str
    path: str
    headers: Mapping[str, str]
    """Looked up by names in lower case."""

    def is_at_most(self, length: int) -> bool:
        """Tell whether the head says that the body has at most so many bytes."""
        said = self.headers.get("content-length", "")
        return said.isascii() and said.isdigit() and len(said) < 20 and int(said) <= length


class Refusal(NamedTuple):
    """Why a request is not taken."""

    status: HTTPStatus
    reason: str
    headers: tuple[tuple[str, str], ...] = ()
    is_final: bool = True
    """It was posted where webhooks are, and would be refused again: a change may be lost by it."""


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
    """What is asked of requests.

    Args:
        signing: What shows that they know the secret; None: nothing is asked.
        max_body_bytes: Longest body to accept.
    """

    path: str
    signing: Signing | None
    max_body_bytes: int

    def of_head(self, head: Head, secret: str) -> Refusal | None:
        """Return why the request is refused before its body is read; None when it is not."""
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

    def of_body(self, head: Head, body: bytes, secret: str) -> Refusal | None:
        """Return why the request is refused once its body is there; None when it is not."""
        if len(body) > self.max_body_bytes:
            return TOO_LARGE
        if self.signing is None or not self.signing.is_of_body:
            return None
        right = self.signing.is_right(head.headers[self.signing.header.lower()], body, secret)
        return None if right else _WRONG
