"""Which certificates and keys are taken, and which are refused instead of asked about; how a server renews its own."""

from __future__ import annotations

import errno
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import structlog
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from structlog.testing import capture_logs

from silverfold.connectors.common import server_thread
from silverfold.connectors.common.server_thread import RenewedCertificate
from silverfold.connectors.common.transport import load_certificate, usable_file
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


def test_where_a_key_may_be_what_is_wrong_it_is_named_with_its_certificate(tmp_path: Path) -> None:
    certificate, key = written(tmp_path, b"")
    for content in (key.read_bytes()[:100], AUTHORITY.issue_cert("localhost").private_key_pem.bytes()):
        key.write_bytes(content)
        with pytest.raises(OSError, match=r"_ssl\.c") as refused:
            load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificate, key)
        assert usable_file(refused.value).startswith(f"a PEM file that can be used: {certificate} with its key {key}: ")


def test_a_file_without_a_key_is_named_alone(tmp_path: Path) -> None:
    certificate, key = written(tmp_path, b"")
    key.write_bytes(b"")
    with pytest.raises(OSError, match="No private key in it") as refused:
        load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificate, key)
    assert usable_file(refused.value) == f"a PEM file that can be used: {key}: No private key in it"


def served(context: ssl.SSLContext) -> bytes | None:
    """Return the certificate that a client is shown, in DER."""
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(to_server, to_client, server_side=True)
    client = trusting.wrap_bio(to_client, to_server)
    for side in (client, server, client):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    return client.getpeercert(binary_form=True)


def test_a_certificate_that_is_renewed_is_shown_to_who_comes_next_and_half_of_it_to_nobody(tmp_path: Path) -> None:
    certificate, key = written(tmp_path, b"")
    log: Any = structlog.get_logger()
    renewed = RenewedCertificate(certificate, key, log)
    (tmp_path / "new").mkdir()
    new_certificate, new_key = written(tmp_path / "new", b"")
    old, new = (ssl.PEM_cert_to_DER_cert(each.read_text()) for each in (certificate, new_certificate))

    assert served(renewed.context) == old
    with capture_logs() as logged:
        certificate.write_bytes(new_certificate.read_bytes()[:100])
        assert served(renewed.context) == old
        certificate.write_bytes(new_certificate.read_bytes())  # the key is the old one's
        assert [served(renewed.context) for _ in range(2)] == [old, old]
        key.unlink()
        assert served(renewed.context) == old
        key.write_bytes(new_key.read_bytes())
        assert [served(renewed.context) for _ in range(2)] == [new, new]
    assert [each["event"] for each in logged] == ["certificate_not_renewed"] * 3 + ["certificate_renewed"]
    assert str(certificate) in logged[0]["file"]


def test_a_renewed_certificate_that_could_not_be_read_for_a_moment_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = written(tmp_path, b"")
    renewed = RenewedCertificate(certificate, key, structlog.get_logger())
    old = served(renewed.context)
    written(tmp_path, b"")

    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with capture_logs() as logged:
        with monkeypatch.context() as short:
            short.setattr(server_thread, "server_context", fail)
            assert [served(renewed.context) for _ in range(2)] == [old, old]
        assert served(renewed.context) == ssl.PEM_cert_to_DER_cert(certificate.read_text()) != old
    assert [each["event"] for each in logged] == ["certificate_not_renewed", "certificate_renewed"]


def test_a_client_is_served_whatever_name_it_sends(tmp_path: Path) -> None:
    renewed = RenewedCertificate(*written(tmp_path, b""), structlog.get_logger())
    hello, to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost").do_handshake()
    server = renewed.context.wrap_bio(to_server, to_client, server_side=True)
    to_server.write(hello.read().replace(b"localhost", b"\xff\xfe\x80-hosts"))
    with pytest.raises(ssl.SSLWantReadError):  # and nothing is printed: warnings are errors
        server.do_handshake()
    assert to_client.read()[:1] == b"\x16"  # a handshake's record; an alert is 0x15
