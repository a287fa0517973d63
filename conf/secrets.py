"""References to secrets: settings contain the location of a secret, never the secret itself.

In TOML ``{ env = "NAME" }`` is an environment variable and ``{ file = "PATH" }`` a file, whose trailing line end is
dropped. A secret is read on each use, so that it is never stored, and a changed secret takes effect at the next use.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

from silverfold.conf.errors import ConfigError
from silverfold.conf.files import check_path, read_whole

_NO_UNICODE = re.compile("[\ud800-\udfff]")
"""What Python has in place of bytes of the environment that are not UTF-8."""
_NO_TEXT = "bytes that are not UTF-8"
REFERENCE = '{ env = "NAME" } or { file = "PATH" }'


class Secret(BaseModel):
    """Location of a secret. Exactly one of the two is set."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    env: str | None = None
    file: Annotated[str, AfterValidator(check_path)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_a_reference(cls, raw: Any) -> Any:
        if isinstance(raw, dict) and len(raw) == 1 and ("env" in raw or "file" in raw):
            return raw
        # The value must not appear in a message: it may be the secret itself.
        raise PydanticCustomError("secret", "a reference to a secret: {reference}", {"reference": REFERENCE})

    @property
    def may_change(self) -> bool:
        """Whether another secret may take its place while the process runs: the environment stays as it is."""
        return self.file is not None

    def reveal(self, environ: Mapping[str, str], setting: str = "secret") -> str:
        """Return the secret, reread on each call; do not log or store it.

        Args:
            setting: Dotted key of the setting that refers to it, for the error.

        Raises:
            ConfigError: The variable is not set, the file cannot be read, or either is not UTF-8.
        """
        if self.env is not None:
            if self.env not in environ:
                raise ConfigError(
                    file="environment", key=self.env, found=None, allowed="the secret that the settings refer to"
                )
            if _NO_UNICODE.search(environ[self.env]):
                raise ConfigError(file="environment", key=self.env, found=_NO_TEXT, allowed="a text")
            return environ[self.env]
        assert self.file is not None
        try:
            return read_whole(Path(self.file)).decode("utf-8-sig").rstrip("\r\n")  # some editors begin with a mark
        except UnicodeDecodeError:  # its text would reveal a byte of the secret
            found = _NO_TEXT
        except OSError as error:
            found = str(error)
        raise ConfigError(file=self.file, key=setting, found=found, allowed="a readable text file")


def revealed(values: Mapping[str, str | Secret], environ: Mapping[str, str], setting: str) -> dict[str, str]:
    """Return the values with every reference replaced by its secret. Raises ConfigError, which names the setting."""
    return {
        name: value.reveal(environ, f"{setting}.{name}") if isinstance(value, Secret) else value
        for name, value in values.items()
    }
