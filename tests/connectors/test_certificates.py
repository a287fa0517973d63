"""Which certificates and keys are taken, and which are refused instead of asked about."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from silverfold.connectors.common.transport import load_certificate
from tests.support.certificates import AUTHORITY


def written(folder: Path, secret: bytes) -> tuple[Path, Path]:
    made = AUTHORITY.issue_cert("localhost")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    certificate.write_bytes(made.cert_chain_pems[0].bytes())
    locked = BestAvailableEncryption(secret) if secret else NoEncryption()
    private = load_pem_private_key(made.private_key_pem.bytes(), None)
    key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked))
    return certificate, key


def test_a_certificate_is_shown_with_its_key(tmp_path: Path) -> None:
    load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), *written(tmp_path, b""))


def test_nobody_is_asked_for_a_pass_phrase(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="A key with a pass phrase") as refused:
        load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), *written(tmp_path, b"hunter2"))
    assert refused.value.filename == str(tmp_path / "key.pem")


def test_a_key_that_is_not_there_is_named(tmp_path: Path) -> None:
    certificate, key = written(tmp_path, b"")
    key.unlink()
    with pytest.raises(FileNotFoundError) as refused:
        load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificate, key)
    assert Path(refused.value.filename) == key
