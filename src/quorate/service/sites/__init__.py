"""A federation: owners answer together without sharing records, each from its own records and its own budget.

    Site                  one owner's teachers, ledger and rules: run by `quorate site serve`
    Sites                 all sites as the coordinator reaches them; `declare` makes an electorate of them
    FederatedClassifier   a private classifier over them
    Keys, Card            the identity of a party: its secret keys, and its public card for the others

`keys` and `masks` are the cryptography, `messages` is what the parties exchange, `server` the site behind HTTPS.
PROOF.md states the guarantee of each mode, and docs/howto/federation.md its trust assumptions.
"""

from typing import TYPE_CHECKING

from quorate.core.lazy import import_on_use

__all__ = ["Card", "FederatedClassifier", "Keys", "Site", "Sites", "serve_site"]

if TYPE_CHECKING:
    from quorate.service.sites._keys import Card, Keys
    from quorate.service.sites._site import Site
    from quorate.service.sites.coordinator import FederatedClassifier, Sites
    from quorate.service.sites.server import serve_site
else:
    __getattr__ = import_on_use(__name__, __file__)  # a site needs no client, and a coordinator no server
