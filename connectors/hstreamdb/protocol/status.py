"""Statuses of calls: the server's own error in the text, what a client is to do, and the error to raise.

From server 0.15.0 the text is ``{"error": number, "message": name, "extra": any}``; else it is plain text.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any, Final

from silverfold.conf.errors import SilverfoldError, SourceRefused, SourceUnavailable

_SECRET: Final = re.compile(r"(?i)(basic)\s+\S+")


class ErrorCode(IntEnum):
    """Numbers of the errors that this project names; 0 is every error without one."""

    INTERNAL = 0
    STREAM_NOT_FOUND = 200
    STREAM_EXISTS = 201
    FOUND_SUBSCRIPTION = 202
    INVALID_REPLICA_FACTOR = 203
    INVALID_STREAM_NAME = 204
    INVALID_SHARD_COUNT = 205
    EMPTY_BATCH = 206
    INVALID_RECORD_SIZE = 207
    INVALID_OFFSET = 208
    INVALID_RECORD_ID = 209
    SHARD_NOT_EXISTS = 210
    SUBSCRIPTION_NOT_FOUND = 300
    SUBSCRIPTION_EXISTS = 301
    NON_EXISTENT_STREAM = 302
    INVALID_SUBSCRIPTION_OFFSET = 303
    INVALID_SUBSCRIPTION_NAME = 304
    FOUND_ACTIVE_CONSUMERS = 305
    WRONG_SERVER = 800
    INVALID_READER_NAME = 900
    CONFLICT_OFFSET = 901


class Action(StrEnum):
    """What a client does about the end of a call."""

    CREATE_OR_STOP = "create_or_stop"
    REOPEN_WITH_NEW_NAME = "reopen_with_new_name"
    COMPARE = "compare_settings_and_go_on"
    LOOKUP_AND_REPEAT = "lookup_and_repeat"
    LOOKUP_AND_REOPEN = "lookup_and_reopen"
    CHECK_AND_REOPEN = "check_existence_then_lookup_and_reopen"
    RETRY_BOUNDED = "retry_bounded"
    STOP = "stop"


_ACTIONS: Final = {
    "OK": Action.LOOKUP_AND_REOPEN,
    "CANCELLED": Action.LOOKUP_AND_REOPEN,
    "UNKNOWN": Action.RETRY_BOUNDED,
    "DEADLINE_EXCEEDED": Action.LOOKUP_AND_REOPEN,
    "NOT_FOUND": Action.CREATE_OR_STOP,
    "ABORTED": Action.LOOKUP_AND_REOPEN,
    "INTERNAL": Action.RETRY_BOUNDED,
    "UNAVAILABLE": Action.LOOKUP_AND_REOPEN,
    "DATA_LOSS": Action.RETRY_BOUNDED,
}
"""By the name of the gRPC code; all others stop."""
_NAMED_ACTIONS: Final = {
    "ConsumerExists": Action.REOPEN_WITH_NEW_NAME,
    "SubscriptionExists": Action.COMPARE,
    "StreamExists": Action.COMPARE,
    "WrongServer": Action.LOOKUP_AND_REPEAT,
    "SubscriptionIsDeleting": Action.CHECK_AND_REOPEN,
}
_NUMBER_NAMES: Final[dict[int, str]] = {
    ErrorCode.STREAM_EXISTS: "StreamExists",
    ErrorCode.SUBSCRIPTION_NOT_FOUND: "SubscriptionNotFound",
    ErrorCode.SUBSCRIPTION_EXISTS: "SubscriptionExists",
    ErrorCode.WRONG_SERVER: "WrongServer",
}
"""Names of errors that decide what to do, by number: the message may be a sentence in place of the name."""
_OF_SUBSCRIPTION: Final = ("GetSubscription", "ListConsumers", "StreamingFetch")
_CODE_NAMES: Final = {
    ("CreateStream", "ALREADY_EXISTS"): "StreamExists",
    ("CreateSubscription", "ALREADY_EXISTS"): "SubscriptionExists",
    ("StreamingFetch", "ALREADY_EXISTS"): "ConsumerExists",
    ("LookupSubscription", "NOT_FOUND"): "SubscriptionNotFound",
    ("DeleteSubscription", "NOT_FOUND"): "SubscriptionNotFound",
    **{(call, "NOT_FOUND"): "SubscriptionNotFound" for call in _OF_SUBSCRIPTION},
    **{(call, "FAILED_PRECONDITION"): "WrongServer" for call in _OF_SUBSCRIPTION},
}
"""Errors by the call and its code, where that has one cause: texts of older servers have no names."""
_FINAL: Final = {Action.STOP, Action.CREATE_OR_STOP, Action.COMPARE}


@dataclass(frozen=True, slots=True)
class Status:
    """How a call ended.

    Args:
        grpc_code: Name of the gRPC code, such as ``NOT_FOUND``.
        text: Its text; credentials in it are hidden by `error`.
        call: Name of the method, if it is known.
    """

    grpc_code: str
    text: str
    call: str = ""

    @property
    def details(self) -> dict[str, Any] | None:
        """The server's own error; None if the text is not one."""
        try:
            found = json.loads(self.text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(found, dict) or not isinstance(found.get("message"), str):
            return None
        return found if type(found.get("error")) is int else None

    @property
    def name(self) -> str:
        """Name of the server's own error: from the text, from what the code means for the call, or the code's."""
        if self.details:
            return _NUMBER_NAMES.get(self.details["error"], str(self.details["message"]))
        return _CODE_NAMES.get((self.call, self.grpc_code), self.grpc_code)

    @property
    def action(self) -> Action:
        """What a client does about it."""
        return _NAMED_ACTIONS.get(self.name) or _ACTIONS.get(self.grpc_code, Action.STOP)

    def error(self, what: str) -> SilverfoldError:
        """Return the error to raise.

        Args:
            what: The call that ended, for the message.

        Returns:
            SourceUnavailable if a later try may succeed, else SourceRefused with `name` as its code.
        """
        text = _hidden(self.text)
        if self.action in _FINAL:
            return SourceRefused(code=_hidden(self.name), text=text, stream=what)
        return SourceUnavailable(f"{what}: {self.grpc_code}: {text}")


def _hidden(text: str) -> str:
    return _SECRET.sub(r"\1 ***", text)


def status_text(code: int, message: str, extra: object) -> str:
    """Return the text of a server's own error."""
    return json.dumps({"error": code, "extra": extra, "message": message}, ensure_ascii=False)
