"""The settings of a server: its models, its address and its limits. Worker processes get them as JSON."""

import ipaddress
import re
from pathlib import Path

import msgspec

from quorate.core.errors import InvalidInput

ENVIRONMENT = "QUORATE_SERVICE"  # the variable that holds the settings of a worker process
PARENT = "QUORATE_SERVICE_PARENT"  # and the number of the process that started it
ORDERS = "QUORATE_SERVICE_ORDERS"  # and the folder in which workers tell each other which models to load and unload

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MINIMUM = {
    "workers": 1,
    "port": 0,
    "pace_ms": 0,
    "lease": 0,
    "body_limit": 1024,
    "row_limit": 1,
    "queue_limit": 1,
    "body_seconds": 1,
    "connection_limit": 1,
    "header_limit": 1024,
    "header_seconds": 0.1,
    "idle_seconds": 1,
    "stop_seconds": 1,
}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How to serve.

    models
        The folder of each model, by the name it is served under.
    host
        The address to listen on. By default only this machine can reach it.
    port
        The port to listen on.
    workers
        The number of worker processes.
    keys
        Whether requests need a key. A server without keys listens on loopback only, because it trusts every caller.
    identity
        A TOML file of issuers whose bearer tokens open models too, such as an OpenID Connect provider's.
    four_eyes
        Whether changes of keys over HTTP that give more wait until a second key of scope keys approves them.
    repository
        A folder whose models are served too, each under the name of its folder. A model that comes there while the
        server runs is loaded within seconds, and one that leaves is unloaded.
    pace_ms
        Answers leave a whole number of paces, in milliseconds, after their request arrived; 0 switches pacing off.
    trusted
        Types of estimators in the models that are not known to be safe, and that are loaded all the same.
    lease
        For how many answers a worker takes budget at once; 0 for none: every group is charged for itself.
    body_limit
        The largest size of a body in bytes.
    row_limit
        The largest number of queries in a body.
    queue_limit
        The largest number of requests that a worker queues before it refuses new ones as overloaded.
    body_seconds
        The longest time for a body to arrive, and for a client to read an answer.
    connection_limit
        The largest number of connections of a worker; the limit of open files can lower it. A new connection replaces
        the one that has waited longest for its client.
    header_limit
        The largest size of a request's headers in bytes.
    header_seconds
        The longest time for a request's headers to arrive.
    idle_seconds
        The longest time between two requests of a connection.
    cluster
        Where ballots are counted, as `PrivateClassifier.place_teachers` takes it; "" for in this process.
    outside_mark
        Whether to spend only where a mark can be written outside the models' folders. Without one, an old copy of a
        folder that is put back spends its budget again.
    tls
        The file of a certificate with its chain, in PEM, for HTTPS; "" for plain HTTP. A renewed file is read again.
    tls_key
        The file of its private key; "" if it is in the same file.
    traces
        Where traces are sent: the address of an OpenTelemetry collector, such as http://localhost:4318/v1/traces.
    stop_seconds
        How long a stop may take after its signal: half for requests under way, and half to close the models.

    >>> Settings(models={"clinic": "/srv/clinic"}).host
    '127.0.0.1'
    >>> Settings(models={"clinic": "/srv/clinic"}, host="0.0.0.0", keys=False)
    Traceback (most recent call last):
    ...
    quorate.core.errors.InvalidInput: without keys a server listens on loopback alone ...
    """

    models: dict[str, str]
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    keys: bool = True
    pace_ms: float = 20.0
    trusted: tuple[str, ...] = ()
    lease: int = 100
    body_limit: int = 4 * 2**20
    row_limit: int = 4096
    queue_limit: int = 1024
    body_seconds: float = 30.0
    connection_limit: int = 1024
    header_limit: int = 2**15
    header_seconds: float = 10.0
    idle_seconds: float = 60.0
    stop_seconds: float = 8.0
    cluster: str = ""
    tls: str = ""
    tls_key: str = ""
    traces: str = ""
    outside_mark: bool = True
    identity: str = ""
    four_eyes: bool = False
    repository: str = ""

    def __post_init__(self) -> None:
        self._check_models()
        for field, minimum in _MINIMUM.items():
            if not getattr(self, field) >= minimum:
                raise InvalidInput(f"{field} must be at least {minimum}, not {getattr(self, field)!r}")
        if self.tls_key and not self.tls:
            raise InvalidInput("tls_key requires tls, the file of its certificate")
        if not self.keys and not is_loopback(self.host):
            raise InvalidInput(
                "without keys a server listens on loopback alone (127.0.0.1, ::1 or localhost); make a key with "
                "'quorate keys add' or listen on loopback"
            )
        if self.identity and not self.keys:
            raise InvalidInput("a server that takes tokens of issuers requires keys; leave --no-keys out")

    def _check_models(self) -> None:
        if not self.models and not self.repository:
            raise InvalidInput("name at least 1 model to serve, or a folder of models (repository)")
        for name in self.models:
            if not is_name(name):
                raise InvalidInput(
                    f"a model is served under 1 to 64 letters, digits, dots, dashes or underscores, not {name!r}"
                )

    @classmethod
    def of(cls, *folders: str | Path, **options: object) -> "Settings":
        """Return settings for models that are served under the names of their folders.

        >>> Settings.of("models/clinic", port=8080).models
        {'clinic': 'models/clinic'}
        """
        models = {Path(folder).resolve().name: str(folder) for folder in folders}
        if len(models) < len(folders):
            raise InvalidInput("two folders have the same name; serve them from folders with different names")
        return cls(models=models, **options)  # type: ignore[arg-type]

    def to_json(self) -> str:
        """Return the settings as a worker process reads them."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> "Settings":
        """Return the settings that `to_json` wrote."""
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.MsgspecError as error:
            raise InvalidInput(f"these are no settings of a server: {error}") from None


def is_name(text: str) -> bool:
    """Return whether a model can be served under this name."""
    return _NAME.fullmatch(text) is not None


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host.lower() in ("localhost", "127.0.0.1", "::1"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
