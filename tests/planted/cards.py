"""Cards of a federation with the certificate of an authority: whoever it has signed is let in.

Certificates take the extra `sites`, which is imported where an attack needs it.
"""

import datetime
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planted.bug import Caught
from quorate.core.errors import InvalidInput
from support.quiet_folder import quiet_folder

if TYPE_CHECKING:
    from quorate.service.sites._keys import Card


def own_cards() -> "type[Card]":
    """Return the class of cards as it is."""
    from quorate.service.sites._keys import Card

    return Card


def accepts_authorities() -> "type[Card]":
    """Return cards that refuse a certificate only where it says in so many words that it is an authority's."""
    from cryptography import x509

    class SaysNothing(own_cards()):  # type: ignore[misc]
        @staticmethod
        def is_own(certificate: x509.Certificate) -> bool:
            """The mistake: one that says nothing will do, whoever signed it."""
            try:
                constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
            except x509.ExtensionNotFound:
                return True
            return not constraints.value.ca

    return SaysNothing


def come_signed(kind: "type[Card]") -> Caught:
    """Give a site the card of an authority for its coordinator's, and come with a certificate that this has signed."""
    from cryptography.hazmat.primitives.asymmetric import ec

    from quorate.service.sites._keys import Keys

    authority, stranger = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    with quiet_folder() as folder:
        north = Keys.make(folder / "north", "north")
        try:
            card = kind("centre", _signed("authority", authority, authority, signs=True), north.card.mask)
        except InvalidInput:
            return Caught("a certificate of another's", "the card is refused", found=False)
        asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        asking.check_hostname, asking.verify_mode = False, ssl.CERT_NONE
        asking.load_cert_chain(_file(folder / "stranger.pem", stranger, _signed("stranger", stranger, authority)))
        let_in = _shakes_hands(north.context(card, server=True), asking)
    return Caught("a certificate of another's", f"a stranger is let in: {let_in}", found=let_in)


def _signed(name: str, key: Any, authority: Any, *, signs: bool = False) -> str:
    """Return a certificate that the authority signed; one that signs says so, and not that it is an authority's."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.x509.oid import NameOID

    issuer, subject = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, one)]) for one in ("authority", name))
    begun = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    ended = begun + datetime.timedelta(days=2)
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number(), begun, ended)
    if signs:
        uses = (True, False, False, False, False, True, True, False, False)  # among them: to sign certificates
        builder = builder.add_extension(x509.KeyUsage(*uses), critical=True)
    pem: bytes = builder.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return pem.decode()


def _file(path: Path, key: Any, certificate: str) -> Path:
    from cryptography.hazmat.primitives import serialization

    form = serialization.PrivateFormat.PKCS8
    pem: bytes = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    path.write_text(pem.decode() + certificate)
    return path


def _shakes_hands(serving: ssl.SSLContext, asking: ssl.SSLContext) -> bool:
    """Return whether a server of this context takes a client of that one, in memory."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [asking.wrap_bio(back, there), serving.wrap_bio(there, back, server_side=True)]
    for _ in range(4):
        for end in list(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return False
            ends.remove(end)
    return not ends
