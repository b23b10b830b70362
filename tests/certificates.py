"""A certificate authority for tests, and what it signs."""

from __future__ import annotations

import datetime
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path

    @property
    def arguments(self) -> list[str]:
        """What `placement serve` takes."""
        return ["--tls-cert", str(self.certificate), "--tls-key", str(self.key)]


class Authority:
    """Signs certificates for this machine's loopback; all files are in its folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.file = folder / f"{name}.crt"
        own = self._builder(self._name, self._key).add_extension(x509.BasicConstraints(True, None), True)
        self.file.write_bytes(self._signed(own))

    def sign(self, name: str, days: int = 1) -> Pair:
        """A certificate of that name for loopback, valid for so many days from now.

        It replaces files of that name at once.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
        built = self._builder(subject, key, days).add_extension(x509.SubjectAlternativeName(names), False)
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        _replace(pair.key, _pem(key))
        _replace(pair.certificate, self._signed(built))
        return pair

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: int = 1
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=2))
            .not_valid_after(now + datetime.timedelta(days=days))
        )

    def _signed(self, builder: x509.CertificateBuilder) -> bytes:
        certificate = builder.sign(self._key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _replace(file: Path, content: bytes) -> None:
    fresh = file.with_suffix(".new")
    fresh.write_bytes(content)
    fresh.chmod(0o600)
    os.replace(fresh, file)
