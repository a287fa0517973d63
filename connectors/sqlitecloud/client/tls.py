"""TLS contexts from connection settings."""

from __future__ import annotations

import ssl

from conf.errors import ConfigError
from conf.files import check_files
from connectors.sqlitecloud.client.settings import Tls
from connectors.common.transport import load_certificate


def tls_context(settings: Tls) -> ssl.SSLContext:
    """Return the TLS context: trust and client certificate. Both connections of a session share it.

    Raises:
        ConfigError: A certificate file is missing, or contains none.
    """
    try:
        check_files([settings.root_certificate])
        context = ssl.create_default_context(cafile=settings.root_certificate)
    except OSError as error:
        raise _unusable("root_certificate", settings.root_certificate, error) from error
    if not settings.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if settings.client_certificate is not None:
        try:
            load_certificate(context, settings.client_certificate, settings.client_certificate_key)
        except OSError as error:
            raise _unusable("client_certificate", settings.client_certificate, error) from error
    return context


def _unusable(key: str, path: str | None, error: OSError) -> ConfigError:
    why = error if error.filename is None else f"{error.filename}: {error.strerror}"
    allowed = f"a PEM file that can be used: {why}"
    return ConfigError(file="connection string", key=key, found=path, allowed=allowed)
