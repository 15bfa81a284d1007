"""Answer together with other owners of records: make keys, run a site, coordinate all sites."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from quorate.cli.options import AsJson, Trusted, require_extra
from quorate.cli.output import check_new_folder, show_bill
from quorate.core.errors import InvalidInput

if TYPE_CHECKING:
    from quorate.service.sites import Card

site = App(name="site", help_format="markdown")

KeysPath = Annotated[Path, Parameter(help="The folder of this party's keys, as `quorate site keys` made it.")]
ModeName = Annotated[
    Literal["counts", "sums", "noise"],
    Parameter(
        help="What the coordinator sees: the counts of each site, only their sums, or only sums with noise that the "
        "sites have added. The same at all parties."
    ),
]
Corrupt = Annotated[
    int, Parameter(help="With --mode noise: how many sites may be corrupt, so that the noise of the others suffices.")
]


def _sites() -> Any:
    """Return the package, or raise an error that names its missing extra."""
    with require_extra("sites", "a federation"):
        import cryptography  # noqa: F401
        import httpx  # noqa: F401
        import msgspec  # noqa: F401
        import uvicorn  # noqa: F401
    from quorate.service import sites

    return sites


@site.command(name="keys")
def _keys(
    name: Annotated[str, Parameter(help="The name of this party in the federation.")],
    *,
    out: Annotated[Path, Parameter(help="A new folder for the keys.")],
    host: Annotated[
        tuple[str, ...], Parameter(negative="", help="A name or address of this party. May be given more than once.")
    ] = ("localhost", "127.0.0.1"),
    json: AsJson = False,
) -> int:
    """Make the keys of a site or of the coordinator, and its card, card.json, for the other parties."""
    keys = _sites().Keys.make(out, name, hosts=host)
    bill = {"name": keys.card.name, "card": str(out / "card.json")}
    bill["give"] = "card.json, by a way that its reader trusts; nothing else"
    return show_bill("Keys", bill, as_json=json, is_result=True)


@site.command(name="serve")
def _serve(
    model: Annotated[Path, Parameter(help="The model of this site, as `quorate fit subsample` wrote it.")],
    *,
    keys: KeysPath,
    coordinator: Annotated[Path, Parameter(help="The card of the coordinator. No one else gets answers.")],
    peer: Annotated[
        tuple[Path, ...],
        Parameter(
            negative="", help="The card of another site, for --mode sums and noise. May be given more than once."
        ),
    ] = (),
    mode: ModeName = "counts",
    corrupt: Corrupt = 0,
    host: Annotated[str, Parameter(help="The address to listen on. By default only this machine can reach it.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, Parameter(help="The port to listen on; 0 for any that is free.")] = 8901,
    trusted: Trusted = (),
) -> int:
    """Send ballots of this owner's teachers to one coordinator, each charged to the model's ledger first."""
    sites = _sites()
    from quorate.service.sites.server import open_site

    if not 0 <= port < 2**16:
        raise InvalidInput(f"port must be a number from 0 to 65535, got {port}")
    party, peers = sites.Keys.read(keys), [sites.Card.read(path) for path in peer]
    card = sites.Card.read(coordinator)
    opened = open_site(model, party, mode=mode, peers=peers, corrupt=corrupt, trusted=list(trusted) or None)

    def ready(host: str, port: int) -> None:
        print(
            f"quorate: site {opened.name} answers {card.name} at https://{host}:{port}. Ctrl-C stops", file=sys.stderr
        )

    return int(
        sites.serve_site(opened, party, card, host=host, port=port, ready=ready if sys.stderr.isatty() else None)
    )


@site.command(name="join")
def _join(
    *address: Annotated[
        str, Parameter(help="A site: its address and its card, such as https://north.example.org:8901=north.json.")
    ],
    keys: KeysPath,
    out: Annotated[Path, Parameter(help="A new folder for the coordinator's model.")],
    mode: ModeName = "counts",
    corrupt: Corrupt = 0,
    epsilon: Annotated[float, Parameter(help="The total privacy loss allowed, at the coordinator.")] = 1.0,
    delta: Annotated[float, Parameter(help="The delta of (epsilon, delta)-differential privacy.")] = 1e-6,
    queries: Annotated[int, Parameter(help="The number of queries to plan for.")] = 1000,
    aggregator: Annotated[
        Literal["noisy_max", "confident_max", "soft_majority", "sharp_majority", "noisy_shares"],
        Parameter(help="The mechanism; with --mode noise it is noisy_max."),
    ] = "noisy_max",
    schema: Annotated[Path | None, Parameter(help="The schema that all sites were fitted with, if any.")] = None,
    seconds: Annotated[float, Parameter(help="How long a site may take to answer a batch.")] = 60.0,
    json: AsJson = False,
) -> int:
    """Make the coordinator's model over running sites, for `quorate predict` and `quorate serve`.

    The model has a budget of its own, and each site has its ledger: an answer is paid for by all of them.
    """
    sites = _sites()
    from quorate.models.saving import save

    check_new_folder(out)
    party, cards = sites.Keys.read(keys), dict(_address(text) for text in address)
    together = sites.Sites(cards, party, mode=mode, corrupt=corrupt, seconds=seconds)
    try:
        extra = _schema_file(schema, together.check_agreement().schema)
        settings = {"epsilon": epsilon, "delta": delta, "queries": queries, "aggregator": aggregator}
        classifier = sites.FederatedClassifier.from_sites(together, **settings)
        save(classifier, out, extra=extra)
    finally:
        together.close()
    bill = {"sites": len(together.names), "teachers": together.teachers, "mode": mode, "claim": classifier.claim_}
    payable = classifier.session_.answerer.ensemble.electorate.payable()
    bill |= {"queries_that_all_sites_can_pay_for": payable, "model": str(out)}
    return show_bill("The federation", bill, as_json=json)


def _address(text: str) -> "tuple[str, Card]":
    url, equals, card = text.rpartition("=")
    if not equals:
        raise InvalidInput(f"a site is named by its address and its card, as https://HOST:PORT=CARD, got {text!r}")
    return url, _sites().Card.read(card)


def _schema_file(schema: Path | None, digest: str) -> dict[str, bytes] | None:
    """Return the schema for the coordinator's folder, or refuse one that differs from that of the sites."""
    from hashlib import sha256

    from quorate.tables import SCHEMA_FILE

    content = None if schema is None else schema.read_bytes()
    if (content is None) != (digest == "") or (content is not None and sha256(content).hexdigest() != digest):
        raise InvalidInput(
            "the sites were fitted with a schema: give its file, schema.json of any site's model, as --schema"
            if digest
            else "the sites were fitted on plain numbers: leave --schema out"
        )
    return None if content is None else {SCHEMA_FILE: content}
