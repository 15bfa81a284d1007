"""A federation: owners who share no records answer together, each from its own records and its own budget.

    Site                  one owner's teachers, ledger and rules: run by `quorate site serve`
    Sites                 all sites as the coordinator reaches them; `declare` makes an electorate of them
    FederatedClassifier   a private classifier over them
    Keys, Card            the identity of a party: what it keeps secret, and what it gives to the others

`keys` and `masks` are the cryptography, `messages` is what the parties exchange, `server` the site behind HTTPS.
PROOF.md states what holds in each mode, and docs/howto/federation.md who must be trusted for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorate.service.sites._keys import Card, Keys
    from quorate.service.sites._site import Site
    from quorate.service.sites.coordinator import FederatedClassifier, Sites
    from quorate.service.sites.server import serve_site

__all__ = ["Card", "FederatedClassifier", "Keys", "Site", "Sites", "serve_site"]

_MODULES = {"Card": "_keys", "Keys": "_keys", "Site": "_site", "serve_site": "server"}


def __getattr__(name: str) -> Any:
    """Find a name when it is first asked for: a site needs no client, and a coordinator no server."""
    if name not in __all__:
        raise AttributeError(f"module 'quorate.service.sites' has no attribute {name!r}")
    return getattr(import_module(f"quorate.service.sites.{_MODULES.get(name, 'coordinator')}"), name)
