"""The parties of a federation: each keeps its `Keys` secret, and gives its `Card` to the others.

    key.pem           the TLS key, P-256
    mask.pem          the key for masks, X25519
    certificate.pem   self-signed: no authority vouches for it, so accepting a card means trusting this party
    card.json         name, certificate and public key for masks, for the others

A card must reach its reader by a trusted channel, such as by hand. Connections and masks are only as secure as the
cards.
"""

import contextlib
import datetime
import ipaddress
import json
import os
import re
import ssl
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.x509.oid import NameOID

from quorate.core.errors import InvalidInput

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FILES = ("key.pem", "mask.pem", "card.json")
_CERTIFICATE = "certificate.pem"


@dataclass(frozen=True)
class Card:
    """The public identity of a party: name, certificate, and public key for masks in hexadecimal.

    >>> Card("north", "what somebody has typed", "00")
    Traceback (most recent call last):
    ...
    quorate.core.errors.InvalidInput: the card of north is damaged: it has no certificate, or no key of masks
    """

    name: str
    certificate: str
    mask: str

    def __post_init__(self) -> None:
        _check_name(self.name)
        try:
            certificate = _parsed(self)
            _mask_key(self)
        except (AttributeError, TypeError, ValueError):
            raise InvalidInput(
                f"the card of {self.name} is damaged: it has no certificate, or no key of masks"
            ) from None
        if not self.is_own(certificate):
            raise InvalidInput(
                f"the card of {self.name} has the certificate of an authority, or one that others have signed; it must "
                "be the party's own"
            )

    @staticmethod
    def is_own(certificate: x509.Certificate) -> bool:
        """Return whether a certificate is signed by its own key and says that it can sign no other; proof: step 1.

        TLS takes one that says nothing of this for an authority's, if it may sign, or is of the first version.
        """
        try:
            certificate.verify_directly_issued_by(certificate)
            constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        except (InvalidSignature, TypeError, ValueError, x509.ExtensionNotFound, x509.DuplicateExtension):
            return False
        return not constraints.ca

    @classmethod
    def read(cls, path: str | Path) -> "Card":
        """Return the card in a file, or in a folder of keys."""
        path = Path(path)
        path = path / "card.json" if path.is_dir() else path
        try:
            return cls(**json.loads(path.read_bytes()))
        except OSError as error:
            raise InvalidInput(f"{path} cannot be read: {error.strerror}") from None
        except (ValueError, TypeError) as error:
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput(f"{path} is no card; 'quorate site keys' writes one") from None


def _parsed(card: Card) -> x509.Certificate:
    """Return the certificate of a card: the first in its text; later ones are ignored."""
    return x509.load_pem_x509_certificate(card.certificate.encode())


def _mask_key(card: Card) -> bytes:
    """Return the public key of masks."""
    raw = bytes.fromhex(card.mask)
    X25519PublicKey.from_public_bytes(raw)
    return raw


class Keys:
    """The secrets of one party, and its card.

    >>> folder = tempfile.TemporaryDirectory()
    >>> keys = Keys.make(Path(folder.name) / "north", "north")
    >>> keys.card.name, Card.read(Path(folder.name) / "north") == keys.card
    ('north', True)
    >>> other = Keys.make(Path(folder.name) / "south", "south")
    >>> keys.shared(other.card) == other.shared(keys.card)  # what only these two know
    True
    >>> folder.cleanup()
    """

    def __init__(self, key: str, mask: str, card: Card) -> None:
        self._key, self.card = key, card
        try:
            loaded = serialization.load_pem_private_key(mask.encode(), None)
            serialization.load_pem_private_key(key.encode(), None)
        except (ValueError, TypeError):
            raise InvalidInput(
                f"the keys of {card.name} are damaged; make new ones, and give the others the card"
            ) from None
        if not isinstance(loaded, X25519PrivateKey) or loaded.public_key().public_bytes_raw() != _mask_key(card):
            raise InvalidInput(f"the keys of {card.name} do not belong to its card")
        self._mask = loaded

    @classmethod
    def make(
        cls, folder: str | Path, name: str, *, hosts: Sequence[str] = ("localhost", "127.0.0.1"), days: int = 3650
    ) -> "Keys":
        """Make keys and a card in a new private folder. `hosts` are the names or addresses of the party."""
        folder = Path(folder)
        _check_name(name)
        if folder.exists():
            raise InvalidInput(f"{folder} exists already; keys are never overwritten")
        key, mask = ec.generate_private_key(ec.SECP256R1()), X25519PrivateKey.generate()
        try:
            certificate = _certificate(name, key, hosts, days)
        except (ValueError, OverflowError):
            raise InvalidInput("a certificate is made for host names or addresses, and a number of days") from None
        card = Card(name, certificate, mask.public_key().public_bytes_raw().hex())
        folder.mkdir(mode=0o700, parents=True)
        written = {"key.pem": _pem(key), "mask.pem": _pem(mask), _CERTIFICATE: certificate}
        for file, text in (written | {"card.json": json.dumps(asdict(card), indent=1)}).items():
            (folder / file).touch(mode=0o644 if file == "card.json" else 0o600)
            (folder / file).write_text(text)
        return cls(written["key.pem"], written["mask.pem"], card)

    @classmethod
    def read(cls, folder: str | Path) -> "Keys":
        """Return the keys in a folder that `make` made."""
        folder = Path(folder)
        try:
            key, mask, _ = ((folder / name).read_text() for name in _FILES)
        except (OSError, UnicodeDecodeError):
            raise InvalidInput(f"{folder} is no folder of keys; 'quorate site keys' makes one") from None
        return cls(key, mask, Card.read(folder))

    def document(self) -> dict[str, Any]:
        """Return the keys as plain values, for a private folder."""
        return {"key": self._key, "mask": _pem(self._mask), "card": asdict(self.card)}

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> "Keys":
        """Return the keys that `document` described."""
        return cls(document["key"], document["mask"], Card(**document["card"]))

    def shared(self, other: Card) -> bytes:
        """Return the secret that this party shares with another: X25519 of their keys for masks."""
        try:
            secret: bytes = self._mask.exchange(X25519PublicKey.from_public_bytes(_mask_key(other)))
        except ValueError:  # a point of low order: everybody would know the secret
            raise InvalidInput(f"the mask key of the card of {other.name} must be a valid X25519 public key") from None
        return secret

    def context(self, other: Card, *, server: bool) -> ssl.SSLContext:
        """Return a TLS 1.3 context that authenticates this party and connects only to this other party."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # The certificate is pinned, so the host name need not match; proof: step 1
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=_parsed(other).public_bytes(serialization.Encoding.DER))  # one, not a list
        with _file(self._key + "\n" + self.card.certificate) as path:
            context.load_cert_chain(path)
        return context

    def __repr__(self) -> str:
        return f"<keys of {self.card.name}>"

    def __reduce__(self) -> Any:
        raise TypeError("keys cannot be copied or pickled")


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInput(f"a party has a name of 1 to 64 letters, digits, dots, dashes or underscores, not {name!r}")


def _pem(key: Any) -> str:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    text: bytes = key.private_bytes(encoding, form, serialization.NoEncryption())
    return text.decode()


def _certificate(name: str, key: ec.EllipticCurvePrivateKey, hosts: Sequence[str], days: int) -> str:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
    )
    signed: bytes = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return signed.decode()


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


@contextlib.contextmanager
def _file(text: str) -> Iterator[str]:
    """Yield a file that only this user can read, and remove it: Python's TLS takes keys from files alone."""
    handle, path = tempfile.mkstemp()
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        yield path
    finally:
        os.unlink(path)
