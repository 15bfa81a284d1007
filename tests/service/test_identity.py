"""Tokens of an issuer on loopback: who they open models to, and every way to forge, stretch or confuse one."""

import base64
import hmac
import io
import json
import socket
import time
from contextlib import contextmanager
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jwk

from quorate import InvalidInput, PrivateClassifier, save
from quorate.core.ledger import find_ledger
from quorate.models.saving import open_folder
from quorate.service import Settings, make_app
from quorate.service._errors import Refused
from quorate.service._identity import Identities, Rule, Subject, fits
from quorate.service._telemetry import Log
from quorate.service._worker import open_models
from support.documents import DOCS, blocks_of
from support.issuer import fetch_keys, issuing, request_token
from support.service_client import features, in_process, serving

INFER, SHARE = "/v2/models/clinic/infer", "/share/clinic"
RULES = """
subjects = 30

[issuers.hospital]
issuer = "{issuer}"
audience = "quorate"
keys = "keys.json"

[[issuers.hospital.rules]]
models = ["clinic"]
claims = {{ groups = "owners" }}
scopes = ["admin"]
unlimited = true

[[issuers.hospital.rules]]
models = ["clinic"]
claims = {{ groups = "stewards" }}
scopes = ["keys"]

[[issuers.hospital.rules]]
models = ["clinic"]
claims = {{ realm = {{ roles = ["ward-3", "ward-4"] }} }}
project = "wards"

[[issuers.hospital.rules]]
models = ["clinic"]
claims = {{ groups = "students" }}
budget = 0.01
per_minute = 2
"""
WARD = {"realm": {"roles": ["staff", "ward-4"]}}
STUDENT = {"groups": ["students"]}


def fit(folder):
    generator = np.random.default_rng(0)
    X = generator.normal(size=(3000, 3))
    y = np.where(X[:, 0] > 0, "yes", "no")
    classifier = PrivateClassifier(
        epsilon=30.0, delta=1e-6, teachers=100, queries=300, classes=["no", "yes"], aggregator="noisy_max"
    )
    return save(classifier.fit(X, y), folder)


def ledger_of(folder):
    return find_ledger(folder, fingerprint=open_folder(folder).fingerprint)


def write_rules(home, issuer, text=RULES):
    fetch_keys(issuer, home / "keys.json")
    path = home / "identity.toml"
    path.write_text(text.format(issuer=issuer.address))
    return path


@pytest.fixture(scope="module")
def issuer():
    with issuing() as issuer:
        yield issuer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = fit(tmp_path_factory.mktemp("model") / "clinic")
    ledger = ledger_of(folder)
    ledger.set_project("wards", budget=0.2)
    ledger.close()
    return folder


@contextmanager
def asking(folder, rules, log=None, **told):
    settings = Settings(models={"clinic": str(folder)}, identity=str(rules), pace_ms=0, lease=0, **told)
    app = make_app(open_models(settings), settings, log=Log(log or io.StringIO()))
    with in_process(app) as ask:

        def send(token, path=INFER, body=None, method="POST"):
            body = features([1, 0, 0]) if body is None and path == INFER else body or b""
            return ask("GET" if path == SHARE else method, path, body, {"authorization": f"Bearer {token}"})

        send.service = app.state.service
        yield send


@pytest.fixture(scope="module")
def ask(folder, issuer, tmp_path_factory):
    with asking(folder, write_rules(tmp_path_factory.mktemp("rules"), issuer)) as ask:
        yield ask


def test_a_token_of_the_issuer_opens_what_its_claims_say(ask, issuer):
    nurse = request_token(issuer, "nurse", **WARD)
    assert ask(nurse).json["outputs"][0]["data"] == ["yes"]
    share = ask(nurse, SHARE).json
    assert (share["project"], share["used"], share["budget"]) == ("wards", 1, None)
    assert [ask(nurse, path, method="GET").code for path in ("/", "/budget/clinic")] == ["forbidden", "forbidden"]
    owner = request_token(issuer, "owner", groups=["owners"])
    assert ask(owner, "/budget/clinic", method="GET").status == 200
    assert ask(request_token(issuer, "stranger")).code == "unauthenticated"
    assert "hospital:nurse" in [key.name for key in ask.service.models["clinic"].ledger.view().keys]


def test_a_subject_is_one_caller_whatever_token_it_brings(ask, issuer):
    tokens = [issuer.token("doctor", jti=str(number), **WARD) for number in range(3)]
    used = []
    for token in tokens:
        assert ask(token).status == 200
        share = ask(token, SHARE).json
        used.append((share["key"], share["used"]))
    assert len({key for key, _ in used}) == 1
    assert [rows for _, rows in used] == [1, 2, 3]


def test_persons_administer_keys_by_their_tokens_and_are_named(ask, issuer):
    boss, nurse = issuer.token("boss", groups=["stewards"]), issuer.token("sam", **WARD)
    made = ask(boss, "/keys/clinic/add", b'{"name": "Ward 9"}').json
    assert ask(made["key"]).status == 200
    id = ask(nurse, SHARE).json["key"]
    assert [ask(boss, f"/keys/clinic/{id}/{order}", b"{}").code for order in ("rotate", "extend")] == [
        "bad_request",
        "bad_request",
    ]
    assert ask(boss, f"/keys/clinic/{id}/change", b'{"quota": 9}').status == 200
    assert ask(nurse, SHARE).json["quota"] == 9
    *_, added, came, changed = ask(boss, "/audit/clinic", method="GET").json["lines"]
    assert (added["by"]["via"], added["by"]["name"]) == ("http", "hospital:boss")
    assert (came["by"]["via"], came["details"]["key"]["subject"]) == ("token", "sam")
    assert (changed["event"], changed["by"]["name"]) == ("key_changed", "hospital:boss")


def encoded(document):
    return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=")


def hs256_with_the_public_key(issuer):
    """Sign with the public key as a secret, which a verifier that trusts `alg` would accept."""
    signed = encoded({"alg": "HS256", "kid": "first"}) + b"." + encoded(issuer.claims(**WARD))
    mac = hmac.digest(issuer.keys["first"].as_pem(private=False), signed, "sha256")
    return (signed + b"." + base64.urlsafe_b64encode(mac).rstrip(b"=")).decode()


def unsigned(issuer, algorithm="none"):
    head, body = encoded({"alg": algorithm, "kid": "first"}), encoded(issuer.claims(**WARD))
    return f"{head.decode()}.{body.decode()}."


def tampered(issuer):
    head, body, signature = issuer.token(**WARD).split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    return f"{head}.{encoded(claims | {'groups': ['owners']}).decode()}.{signature}"


def by_another(issuer, **header):
    """Sign with a key of the attacker, who names it in the header where verifiers might look for it."""
    key = jwk.RSAKey.generate_key(2048, {"kid": "first"})
    public = key.as_dict(private=False)
    told = {name: public if value is ... else value for name, value in header.items()}
    return issuer.token(key=key, header=told, **WARD)


NOW = int(time.time())
FORGED = {
    "alg none": unsigned,
    "alg None": lambda issuer: unsigned(issuer, "None"),
    "the public key as a secret": hs256_with_the_public_key,
    "claims changed after the signature": tampered,
    "a key of the attacker": by_another,
    "a key in the header": lambda issuer: by_another(issuer, jwk=...),
    "an address of keys": lambda issuer: by_another(issuer, jku="http://127.0.0.1:1/jwks.json"),
    "another algorithm of the same key": lambda issuer: issuer.token(header={"alg": "RS512"}, **WARD),
    "PSS where PKCS1 is pinned": lambda issuer: issuer.token(header={"alg": "PS256"}, **WARD),
    "an unknown kid": lambda issuer: issuer.token(header={"kid": "other"}, **WARD),
    "a kid of a path": lambda issuer: issuer.token(header={"kid": "../../dev/null"}, **WARD),
    "another type": lambda issuer: issuer.token(header={"typ": "logout+jwt"}, **WARD),
    "expired": lambda issuer: issuer.token(exp=NOW - 3600, **WARD),
    "expired by a minute": lambda issuer: issuer.token(exp=int(time.time()) - 60, **WARD),
    "without an end": lambda issuer: issuer.token(without=["exp"], **WARD),
    "an end that is text": lambda issuer: issuer.token(exp="9999999999", **WARD),
    "an end that is true": lambda issuer: issuer.token(exp=True, **WARD),
    "an end that is no number": lambda issuer: issuer.token(exp=float("nan"), **WARD),
    "an end that never comes": lambda issuer: issuer.token(exp=10**400, **WARD),
    "a life of a year": lambda issuer: issuer.token(exp=NOW + 365 * 86400, **WARD),
    "not yet valid": lambda issuer: issuer.token(nbf=NOW + 3600, **WARD),
    "issued in the future": lambda issuer: issuer.token(iat=NOW + 3600, **WARD),
    "another audience": lambda issuer: issuer.token(aud="payroll", **WARD),
    "an audience that begins alike": lambda issuer: issuer.token(aud="quorate-test", **WARD),
    "no audience": lambda issuer: issuer.token(without=["aud"], **WARD),
    "an empty audience": lambda issuer: issuer.token(aud=[], **WARD),
    "an audience that is an object": lambda issuer: issuer.token(aud={"quorate": 1}, **WARD),
    "another issuer": lambda issuer: issuer.token(iss="https://evil.example", **WARD),
    "an issuer with a slash": lambda issuer: issuer.token(iss=f"{issuer.address}/", **WARD),
    "a list of issuers": lambda issuer: issuer.token(iss=[issuer.address], **WARD),
    "no subject": lambda issuer: issuer.token(without=["sub"], **WARD),
    "an empty subject": lambda issuer: issuer.token("", **WARD),
    "a subject that looks alike": lambda issuer: issuer.token("аlice", **WARD),
    "a subject with a line": lambda issuer: issuer.token("alice\nroot", **WARD),
    "a subject that is a number": lambda issuer: issuer.token(7, **WARD),
    "a long subject": lambda issuer: issuer.token("a" * 256, **WARD),
    "an oversized token": lambda issuer: issuer.token(padding="x" * 9000, **WARD),
    "nested without end": lambda issuer: (
        issuer.token().rpartition(".")[0].partition(".")[0]
        + "."
        + base64.urlsafe_b64encode(b"[" * 5000).decode()
        + ".AAAA"
    ),
    "three dots": lambda issuer: "..",
    "bytes of no alphabet": lambda issuer: "é.é.é",
    "a role in a text": lambda issuer: issuer.token(realm="ward-4"),
    "a role as a key": lambda issuer: issuer.token(realm={"roles": {"ward-4": True}}),
    "a role by its beginning": lambda issuer: issuer.token(realm={"roles": ["ward-44"]}),
}


@pytest.mark.parametrize("attack", FORGED)
def test_a_forged_token_opens_nothing(attack, ask, issuer):
    keys = len(ask.service.models["clinic"].ledger.view().keys)
    got = ask(FORGED[attack](issuer))
    assert (got.status, got.code) == (401, "unauthenticated")
    assert len(ask.service.models["clinic"].ledger.view().keys) == keys


def allow(**settings):
    def weaken(issuer, monkeypatch):
        issuer.rules = msgspec.structs.replace(issuer.rules, **settings)

    return weaken


def trust_signatures(issuer, monkeypatch):
    """Leave out that the signature is checked, and the algorithms: what a token says of itself is believed."""
    allow(algorithms=("RS256", "HS256", "none"))(issuer, monkeypatch)
    issuer._key = lambda header, algorithm: None
    monkeypatch.setattr(issuer._jws, "validate_compact", lambda *arguments, **told: True)


def take_any_subject(issuer, monkeypatch):
    monkeypatch.setattr("quorate.service._identity._is_subject", lambda subject: True)


WEAKENED = {
    "alg none": trust_signatures,
    "the public key as a secret": trust_signatures,
    "claims changed after the signature": trust_signatures,
    "a key of the attacker": trust_signatures,
    "another algorithm of the same key": allow(algorithms=("RS512",)),
    "PSS where PKCS1 is pinned": allow(algorithms=("PS256",)),
    "another type": allow(types=("logout+jwt",)),
    "expired by a minute": allow(leeway=90),
    "a life of a year": allow(longest_hours=24 * 366),
    "not yet valid": allow(leeway=7200),
    "another audience": allow(audience="payroll"),
    "a subject that looks alike": take_any_subject,
    "a subject with a line": take_any_subject,
    "a long subject": take_any_subject,
}


@pytest.mark.parametrize("attack", WEAKENED)
def test_a_server_without_the_check_would_take_the_forged_token(attack, issuer, tmp_path, monkeypatch):
    """Each of these tokens is refused for one reason, and not because it is malformed besides."""
    identities = Identities(write_rules(tmp_path, issuer))
    token = FORGED[attack](issuer)
    with pytest.raises(Refused):
        identities.verify(token)
    WEAKENED[attack](identities._issuers[issuer.address], monkeypatch)
    assert identities.verify(token).claims["aud"] in ("quorate", "payroll")


def test_clocks_may_differ_by_the_leeway(ask, issuer):
    now = int(time.time())
    assert ask(issuer.token("late", exp=now - 10, **WARD)).status == 200
    assert ask(issuer.token("early", nbf=now + 20, iat=now + 20, **WARD)).status == 200


def test_the_log_says_why_and_the_client_does_not(folder, issuer, tmp_path):
    log = io.StringIO()
    with asking(folder, write_rules(tmp_path, issuer), log=log) as ask:
        told = {
            ask(FORGED[attack](issuer)).body for attack in ("expired", "another audience", "alg none", "three dots")
        }
        ask.service.log.flush()
    causes = [json.loads(line).get("cause") for line in log.getvalue().splitlines() if '"request"' in line]
    assert causes == ["token_expired", "token_claims", "token_algorithm", "token_form"]
    assert len(told) == 1


def test_a_subject_named_like_a_key_is_another_caller(ask, issuer):
    ledger = ask.service.models["clinic"].ledger
    token = ledger.add_key("victim", budget=0.5)
    id = token.split("_")[1]
    assert ask(token).status == 200
    for subject in (id, f"qk_{id}", token, "victim"):
        share = ask(issuer.token(subject, **WARD), SHARE).json
        assert share["key"] != id
        assert (share["used"], share["budget"]) == (0, None)
    assert ask(f"qk_{share['key']}_").code == "unauthenticated"  # the key of a subject has no secret, not an empty one
    assert ask(f"qk_{share['key']}_.a.b").code == "unauthenticated"
    with pytest.raises(InvalidInput, match="no secret to exchange"):
        ledger.rotate_key(share["key"])


def test_a_later_token_widens_no_share(ask, issuer):
    student = issuer.token("eve", **STUDENT)
    assert ask(student, SHARE).json["budget"] == pytest.approx(0.01, rel=1e-6)
    wider = issuer.token("eve", budget=1.0, unlimited=True, scopes=["admin"], project="wards", **STUDENT)
    assert ask(wider, SHARE).json["budget"] == pytest.approx(0.01, rel=1e-6)
    promoted = issuer.token("eve", **STUDENT, **WARD)  # now the rule of the wards comes first
    share = ask(promoted, SHARE).json
    assert (share["budget"], share["project"]) == (pytest.approx(0.01, rel=1e-6), None)
    codes = [ask(student, body=features([1, 1, row], id=str(row))).code for row in range(3)]
    assert codes[2] == "rate_limited"


def test_a_revoked_subject_stays_out(ask, issuer):
    token = issuer.token("mallory", **WARD)
    id = ask(token, SHARE).json["key"]
    ask.service.models["clinic"].ledger.revoke_key(id)
    time.sleep(1.2)  # a caller is remembered for a second
    assert ask(token).code == "unauthenticated"
    assert ask(issuer.token("mallory", jti="new", **WARD)).code == "unauthenticated"


def test_a_key_that_the_issuer_withdraws_opens_nothing(folder, tmp_path):
    with issuing() as issuer:
        rules = write_rules(tmp_path, issuer)
        with asking(folder, rules) as ask:
            issuer.add_key("second")
            old, new = (issuer.token("roller", kid=kid, **WARD) for kid in ("first", "second"))
            assert (ask(old).status, ask(new).status) == (200, 401)
            fetch_keys(issuer, tmp_path / "keys.json")
            time.sleep(1.1)
            assert [ask(token).status for token in (old, new)] == [200, 200]
            issuer.keys.pop("first")
            fetch_keys(issuer, tmp_path / "keys.json")
            time.sleep(1.1)
            assert [ask(token).status for token in (old, new)] == [401, 200]
            (tmp_path / "keys.json").write_text("{")
            time.sleep(1.1)
            assert ask(new).status == 401  # nobody knows which keys are valid


def test_ordinary_callers_do_not_keep_an_administrator_out(folder, issuer, tmp_path):
    with asking(folder, write_rules(tmp_path, issuer, RULES.replace("subjects = 30", "subjects = 0"))) as ask:
        assert ask(issuer.token("crowd", **WARD)).code == "forbidden"
        assert ask(issuer.token("late-boss", groups=["stewards"]), "/keys/clinic", method="GET").status == 200
        assert ask(issuer.token("late-owner", groups=["owners"]), "/budget/clinic", method="GET").status == 200


def test_nobody_revokes_whoever_became_an_administrator(folder, issuer, tmp_path):
    with asking(folder, write_rules(tmp_path, issuer)) as ask:
        boss = issuer.token("first-boss", groups=["stewards"])
        id = ask(issuer.token("riser", **WARD), SHARE).json["key"]
        entries = ask.service.models["clinic"].ledger.view().entries
        for claims in ({"groups": ["owners"]}, WARD, {"groups": ["owners"]}, WARD):
            ask(issuer.token("riser", jti=str(claims), **claims), SHARE)
        assert ask.service.models["clinic"].ledger.view().entries == entries + 1  # fewer scopes are noted later
        assert ask(boss, f"/keys/clinic/{id}/revoke", b"{}").code == "forbidden"
        shown = {key["id"]: key["scopes"] for key in ask(boss, "/keys/clinic", method="GET").json["keys"]}
        assert shown[id] == ["admin"]
        lines = ask(boss, "/audit/clinic", method="GET").json["lines"]
        (line,) = [line for line in lines if line["event"] == "key_changed" and line["by"]["id"] == id]
        assert line["details"]["values"] == {"scopes": ["admin"]}
        assert ask.service.models["clinic"].ledger.verify().problems == ()


def test_the_scopes_of_a_key_with_a_secret_stay(ask):
    ledger = ask.service.models["clinic"].ledger
    with pytest.raises(InvalidInput, match="only tokens"):
        ledger.set_scopes(ledger.add_key("Ward 7").split("_")[1], ["admin"])


def test_a_token_for_an_unknown_model_changes_no_other(ask, issuer):
    token, names = issuer.token("lost", **WARD), ask.service.models["clinic"].ledger.view().keys
    assert ask(token, "/v2/models/nothing/infer", b"{}").code == "unauthenticated"
    assert ask.service.models["clinic"].ledger.view().keys == names


def test_subjects_are_bounded(folder, issuer, tmp_path):
    rules = write_rules(tmp_path, issuer, RULES.replace("subjects = 30", "subjects = 0"))
    with asking(folder, rules) as ask:
        keys = len(ask.service.models["clinic"].ledger.view().keys)
        assert ask(issuer.token("one-too-many", **WARD)).code == "forbidden"
        assert len(ask.service.models["clinic"].ledger.view().keys) == keys


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ('keys = "keys.json"', 'keys = "keys.json"\nalgorithms = ["none"]', "algorithms"),
        ('keys = "keys.json"', 'keys = "keys.json"\nalgorithms = ["HS256"]', "algorithms"),
        ('keys = "keys.json"', 'keys = "keys.json"\nalgorithms = []', "algorithms"),
        ('keys = "keys.json"', 'keys = "keys.json"\nleeway = 3600', "leeway"),
        ('keys = "keys.json"', 'keys = "missing.json"', "JWKS"),
        ('audience = "quorate"', "", "audience"),
        ('audience = "quorate"', 'audience = ""', "audience"),
        ('claims = {{ groups = "students" }}', "", "claims"),
        ("budget = 0.01", "buget = 0.01", "buget"),
        ("budget = 0.01", "budget = 2.0", "budget"),
        ("budget = 0.01", "per_phase = 3", "per_phase"),
        ('project = "wards"', 'project = "warts"', "warts"),
        ('scopes = ["admin"]', 'scopes = ["root"]', "scopes"),
    ],
)
def test_rules_that_cannot_hold_are_refused_at_the_start(before, after, problem, folder, issuer, tmp_path):
    assert before in RULES
    rules = write_rules(tmp_path, issuer, RULES.replace(before, after))
    with pytest.raises(InvalidInput, match=problem), asking(folder, rules):
        pass


def keys_of(*entries):
    return lambda path: path.write_text(json.dumps({"keys": list(entries)}))


EC = jwk.ECKey.generate_key("P-256", {"kid": "ec"})
OLD = {"kty": "RSA", "kid": "old", "n": base64.urlsafe_b64encode(b"\xc1" * 128).rstrip(b"=").decode(), "e": "AQAB"}


@pytest.mark.filterwarnings("ignore:Key size")
@pytest.mark.parametrize(
    ("write", "problem"),
    [
        (keys_of(), "public keys"),
        (keys_of({"kty": "oct", "k": "c2VjcmV0", "kid": "s"}), "secret or private"),
        (keys_of(EC.as_dict(private=True)), "secret or private"),
        (keys_of(EC.as_dict(private=False), EC.as_dict(private=False)), "each kid"),
        (keys_of(EC.as_dict(private=False) | {"x": "AA"}), "cannot be read"),
        (keys_of(OLD), "2048 bits"),
        (keys_of({"kty": "AKP", "kid": "later", "pub": "AA"}), "public keys"),
        (lambda path: path.write_text("[]"), "other JSON"),
        (lambda path: path.chmod(0o666), "written by others"),
    ],
)
def test_keys_that_prove_nothing_are_refused_at_the_start(write, problem, issuer, tmp_path):
    rules = write_rules(tmp_path, issuer)
    Identities(rules)
    write(tmp_path / "keys.json")
    with pytest.raises(InvalidInput, match=problem):
        Identities(rules)


def test_other_algorithms_are_taken_where_they_are_allowed(issuer, tmp_path):
    text = RULES.replace('keys = "keys.json"', 'keys = "keys.json"\nalgorithms = ["ES256", "PS256", "Ed25519"]')
    rules = write_rules(tmp_path, issuer, text)
    curve = jwk.OKPKey.generate_key("Ed25519", {"kid": "ed"})
    keys = [EC, curve, issuer.keys["first"]]
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [key.as_dict(private=False) for key in keys]}))
    identities = Identities(rules)
    for algorithm, key in zip(("ES256", "Ed25519", "PS256"), keys, strict=True):
        token = issuer.token(key=key, header={"alg": algorithm, "kid": key.kid}, **WARD)
        assert identities.verify(token).subject == "alice"


def test_the_rules_of_the_guide_can_be_read(issuer, tmp_path):
    (rules,) = [block.body for block in blocks_of(DOCS / "howto" / "identity.md") if block.language == "toml"]
    (tmp_path / "identity.toml").write_text(rules)
    fetch_keys(issuer, tmp_path / "hospital.jwks.json")
    assert [rule.models for rule in Identities(tmp_path / "identity.toml")._rules("icu")] == [("triage", "icu")]


PLAIN = st.one_of(st.text(max_size=5), st.booleans(), st.integers(-3, 3))
CLAIMS = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner))


@given(CLAIMS, CLAIMS)
def test_a_claim_fits_only_what_is_written_in_it(wanted, claim):
    """Everything that a rule wants stands in the token, with its type: nothing fits by its truth or its beginning."""

    def leaves(value):
        if isinstance(value, dict):
            return [leaf for inner in value.values() for leaf in leaves(inner)]
        if isinstance(value, list):
            return [leaf for inner in value for leaf in leaves(inner)]
        return [(type(value), value)]

    assert (
        not fits(wanted, claim)
        or wanted in ({}, [])
        or isinstance(wanted, list | dict)
        or (type(wanted), wanted) in leaves(claim)
    )
    if isinstance(wanted, str | bool | int):
        assert fits(wanted, wanted)
        assert fits(wanted, ["x", wanted])
        assert fits({"a": wanted}, {"a": wanted, "b": claim})
        assert not fits({"a": wanted}, claim) or (isinstance(claim, dict) and "a" in claim)


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from(["m", "n", "*"])), max_size=5), st.data())
def test_the_first_rule_that_fits_decides(pairs, data):
    rules = [Rule(models=(model,), claims={"group": group}, budget=0.1) for group, model in pairs]
    groups = data.draw(st.lists(st.sampled_from(["a", "b", "c", "d"])))
    subject = Subject(SimpleNamespace(rules=SimpleNamespace(rules=rules)), "s", {"group": groups})
    fitting = [rule for rule, (group, model) in zip(rules, pairs, strict=True) if group in groups and model in "m*"]
    assert subject.rule("m") == (fitting[0] if fitting else None)


def test_a_server_takes_no_token_from_a_trailer(folder, issuer, tmp_path):
    """Over a real connection, with two workers that make the key of one subject once."""
    rules = write_rules(tmp_path, issuer)
    told = Settings(models={"clinic": str(folder)}, identity=str(rules), port=0, workers=2, lease=0)
    token = issuer.token("twice", **WARD)
    body = features([1, 0, 0])
    with serving(told, tmp_path / "log") as server:
        head = f"POST {INFER} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n"
        sent = f"{head}\r\n{len(body):x}\r\n{body.decode()}\r\n0\r\nauthorization: Bearer {token}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(sent.encode())
            answer = b""
            while received := connection.recv(65536):
                answer += received
        assert answer.startswith(b"HTTP/1.1 401")
        headers = {"authorization": f"Bearer {token}"}
        for _ in range(8):
            assert server.request("POST", INFER, body, headers).status == 200
        assert server.request("POST", INFER, body, {"authorization": f"Bearer {token}x"}).status == 401
        assert (
            server.request("GET", "/v2/health/live", headers={"authorization": "Bearer " + "a" * 40_000}).status == 431
        )
    names = [key.name for key in ledger_of(folder).view().keys]
    assert names.count("hospital:twice") == 1
