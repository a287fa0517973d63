"""Test certificates, generated at run time and issued by a private authority."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

import trustme

AUTHORITY = trustme.CA()


def trusting() -> ssl.SSLContext:
    """Return a client context that trusts the authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    AUTHORITY.configure_trust(context)
    return context


def trusted_file(folder: Path) -> str:
    """Write the authority's certificate to a file; return its path."""
    path = folder / "authority.pem"
    AUTHORITY.cert_pem.write_to_path(str(path))
    return str(path)


def server_of(*names: str, authority: trustme.CA = AUTHORITY, **validity: datetime) -> ssl.SSLContext:
    """Return a server context with a certificate for these names, localhost by default."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*(names or ("localhost", "127.0.0.1")), **validity).configure_cert(context)
    return context


def expired() -> ssl.SSLContext:
    """Return a server context whose certificate was valid for one day in 2020."""
    return server_of(not_before=datetime(2020, 1, 1, tzinfo=UTC), not_after=datetime(2020, 1, 2, tzinfo=UTC))


def of_a_stranger() -> ssl.SSLContext:
    """Return a server context whose certificate was issued by an untrusted authority."""
    return server_of(authority=trustme.CA())
