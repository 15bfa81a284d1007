"""The JSON documents of the service as types, which also define the schemas of the OpenAPI document."""

from typing import Any, Literal

import msgspec

EXTENSIONS = ("binary_tensor_data", "model_repository")  # of the protocol

Number = int | float


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    pass


class UnloadParameters(_Document):
    """What stock clients say when they unload a model: models here have no dependents."""

    unload_dependents: bool = False


class IndexRequest(_Document):
    """The models to list: all models, or only ready ones."""

    ready: bool = False


class LoadRequest(_Document):
    """What may be said when a model is loaded or unloaded. Its folder says all the rest."""

    parameters: UnloadParameters | None = None


class IndexEntry(_Document):
    """A model that a key opens, whether it is ready, and if not, why."""

    name: str
    version: str
    state: Literal["READY", "UNAVAILABLE"]
    reason: str


class Nothing(_Document):
    """An empty document: it is done."""


class Live(_Document):
    """The server runs."""

    live: bool


class Ready(_Document):
    """All models answer."""

    ready: bool


class ModelReady(_Document):
    """A model answers."""

    name: str
    ready: bool


class ServerMetadata(_Document):
    """The server, and the extensions of the protocol that it speaks."""

    name: str
    version: str
    extensions: list[str]


class TensorMetadata(_Document):
    """A tensor that a model takes or gives; -1 in its shape is the number of queries."""

    name: str
    datatype: str
    shape: list[int]


class ModelParameters(_Document):
    """The guarantee of a model, its classes, its code for no answer, and texts that mean a missing value."""

    claim: str
    classes: list[str | int | float | bool]
    label_if_not_answered: str | int | float | bool
    missing_texts: list[str] | msgspec.UnsetType = msgspec.UNSET


class ModelMetadata(_Document):
    """The inputs and outputs of a model."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]
    parameters: ModelParameters


class AnswerParameters(_Document):
    """How many bytes after the JSON are the data of an output."""

    binary_data_size: int


class AnswerTensor(_Document):
    """An output: its data in the JSON, flat in row-major order, or after it as bytes."""

    name: str
    datatype: str
    shape: list[int]
    data: list[Any] | msgspec.UnsetType = msgspec.UNSET
    parameters: AnswerParameters | msgspec.UnsetType = msgspec.UNSET


class Answer(_Document):
    """The answers to a request, with its id if it had one."""

    model_name: str
    model_version: str
    outputs: list[AnswerTensor]
    id: str | msgspec.UnsetType = msgspec.UNSET


class LedgerHead(_Document):
    """How far a ledger has come."""

    entries: int
    head: str


class Budget(_Document, rename={"remaining": "left"}):
    """The budget of a model and its spending, with the progress of the phase of an everlasting model."""

    model: str
    claim: str
    epsilon: Number
    delta: Number
    spent_epsilon: Number | msgspec.UnsetType = msgspec.UNSET
    remaining: Number | msgspec.UnsetType = msgspec.UNSET
    leased: Number | msgspec.UnsetType = msgspec.UNSET
    ledger: LedgerHead | msgspec.UnsetType = msgspec.UNSET
    phase: int | msgspec.UnsetType = msgspec.UNSET
    seats: int | msgspec.UnsetType = msgspec.UNSET
    seats_taken: int | msgspec.UnsetType = msgspec.UNSET
    closed: bool | msgspec.UnsetType = msgspec.UNSET
    probe: int | msgspec.UnsetType = msgspec.UNSET
    drift: Number | msgspec.UnsetType | None = msgspec.UNSET
    no_quorums: int | msgspec.UnsetType = msgspec.UNSET


class Share(_Document):
    """The limits of a key (null for no limit) and its use."""

    key: str
    project: str | None
    expires: Number | None
    quota: int | None
    used: int
    per_minute: int | None
    per_phase: int | None
    in_phase: int
    no_quorums: int | None
    no_quorums_met: int
    budget: Number | None
    budget_spent: Number
    last_use: Number | None


class _Limits(_Document):
    quota: int | None = None
    per_minute: int | None = None
    per_phase: int | None = None
    no_quorums: int | None = None
    budget: float | None = None


Limit = Literal["quota", "per_minute", "per_phase", "no_quorums", "budget"]


class KeyOrder(_Limits, kw_only=True):
    """A new key: who it is for, what it may do, and its share: a tenth of the budget unless this says another."""

    name: str
    scopes: tuple[Literal["ask", "budget"], ...] = ("ask",)
    project: str = ""
    expires_days: float | None = None
    unlimited: bool = False


class KeyChange(_Limits, kw_only=True):
    """New limits of a key, and limits to lift; those that are not named stay."""

    project: str | None = None
    expires_days: float | None = None
    lift: tuple[Limit | Literal["expires"], ...] = ()


class ProjectOrder(_Limits, kw_only=True):
    """A project, with new limits and limits to lift; those that are not named stay."""

    name: str
    lift: tuple[Limit, ...] = ()


class RotationOrder(_Document):
    """For how many hours the old secret stays valid."""

    grace_hours: float = 0.0


class ExtensionOrder(_Limits, kw_only=True):
    """The other models that a key is to open, and its share in each."""

    models: list[str]
    unlimited: bool = False


class KeyOrdered(_Document):
    """What became of an order: the key and its models; its new secret; the proposal, where a second person decides."""

    id: str
    models: list[str]
    key: str | msgspec.UnsetType = msgspec.UNSET
    proposal: str | msgspec.UnsetType = msgspec.UNSET


class _Use(_Document, kw_only=True):
    quota: int | None
    used: int
    per_minute: int | None
    per_phase: int | None
    in_phase: int
    no_quorums: int | None
    no_quorums_met: int
    budget: Number | None
    budget_spent: Number
    last_use: Number | None


class KeyEntry(_Use, kw_only=True):
    """A key, without its secret: its holder, its limits and its use."""

    id: str
    name: str
    scopes: list[str]
    issuer: str | None
    project: str | None
    created: Number
    expires: Number | None
    revoked: bool


class ProjectEntry(_Use, kw_only=True):
    """A project: the limits that its keys share, and their use."""

    name: str


class ProposalEntry(_Document):
    """A change that waits for a second person."""

    id: str
    at: Number
    by: dict[str, str]
    kind: str
    change: dict[str, Any]


class KeyListing(_Document):
    """The keys, the projects and the proposals of a model."""

    keys: list[KeyEntry]
    projects: list[ProjectEntry]
    proposals: list[ProposalEntry]


class AuditLine(_Document, kw_only=True):
    """An entry of the ledger about keys, shares or the ledger itself, and who made it."""

    seq: int
    time: str
    event: str
    by: dict[str, str] | None
    details: dict[str, Any]
    seal: str


class AuditLog(_Document):
    """Lines of the audit trail, and the entry to go on after."""

    lines: list[AuditLine]
    after: int


class Fed(_Document):
    """How many points an everlasting model was fed."""

    fed: int


class Inserted(_Document):
    """The names of the units that a model of neighbours has taken in."""

    inserted: list[str]


class Forgotten(_Document):
    """How many units a model of neighbours has forgotten."""

    forgotten: int


DOCUMENTS: dict[str, Any] = {  # by the endpoint that sends them
    "infer": Answer,
    "live": Live,
    "ready": Ready,
    "server": ServerMetadata,
    "model": ModelMetadata,
    "model_ready": ModelReady,
    "index": list[IndexEntry],
    "load": Nothing,
    "unload": Nothing,
    "share": Share,
    "budget": Budget,
    "list_keys": KeyListing,
    "add_key": KeyOrdered,
    "change_key": KeyOrdered,
    "rotate_key": KeyOrdered,
    "revoke_key": KeyOrdered,
    "extend_key": KeyOrdered,
    "set_project": KeyOrdered,
    "approve": KeyOrdered,
    "reject": KeyOrdered,
    "audit": AuditLog,
    "feed": Fed,
    "insert": Inserted,
    "forget": Forgotten,
}
