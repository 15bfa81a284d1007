"""Keys that are administered over HTTP: who may, what they may not, two persons where asked for, and the trail."""

import io
import json
import time
from contextlib import contextmanager

import msgspec
import numpy as np
import pytest
from fake_session import FakeSession
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate import Budget
from quorate.core.errors import InvalidInput, LedgerRefused
from quorate.core.ledger import Ledger, audit_lines, check_audit, refusal_lines
from quorate.service import Model, Settings, make_app
from quorate.service._administration import _PER_MINUTE
from quorate.service._documents import AuditLog, KeyListing, KeyOrdered
from quorate.service._inputs import MatrixInput
from quorate.service._openapi import ROUTES
from quorate.service._outputs import Outputs
from quorate.service._telemetry import Log
from support.service_client import features, in_process


def make_model(home, name):
    folder = home / name
    folder.mkdir()
    ledger = Ledger.create(folder / "ledger.sqlite", Budget(epsilon=1.0, delta=0.0), fingerprint=f"model {name}")
    outputs = Outputs(np.array(["no", "yes"]))
    return Model(name, session=FakeSession(), inputs=MatrixInput(3), outputs=outputs, ledger=ledger)


class Asking:
    def __init__(self, ask, models, access):
        self._ask, self.models, self.access = ask, models, access
        self.ledgers = {name: model.ledger for name, model in models.items()}

    def __call__(self, token, path, order=None, *, method=None):
        method = method or ("GET" if order is None else "POST")
        body = b"" if order is None else order if isinstance(order, bytes) else json.dumps(order).encode()
        return self._ask(method, path, body, {"authorization": f"Bearer {token}"})

    def key(self, model, id):
        return self.ledgers[model].state().keys[id]


@contextmanager
def administering(home, *names, **told):
    models = {name: make_model(home, name) for name in names or ("m",)}
    made = Settings(models=dict.fromkeys(models, "."), pace_ms=0, **told)
    app = make_app(list(models.values()), made, log=Log(io.StringIO()))
    with in_process(app) as ask:
        yield Asking(ask, models, app.state.service.access)


@pytest.fixture
def ask(tmp_path):
    with administering(tmp_path, "m", "n") as ask:
        yield ask


@pytest.fixture
def admin(ask):
    return ask.ledgers["m"].add_key("Ms Key", scopes=["keys"])


def ordered(got):
    assert got.status == 200, got.body
    return msgspec.json.decode(got.body, type=KeyOrdered)


def test_a_key_is_made_changed_rotated_and_revoked(ask, admin):
    made = ordered(ask(admin, "/keys/m/add", {"name": "Ward 3", "per_minute": 60}))
    share = ask(made.key, "/share/m").json
    assert (share["budget"], share["per_minute"]) == (pytest.approx(0.1), 60)  # a tenth, unless it is said otherwise
    ordered(ask(admin, f"/keys/m/{made.id}/change", {"budget": 0.25, "lift": ["per_minute"]}))
    assert ask.key("m", made.id).per_minute is None
    rotated = ordered(ask(admin, f"/keys/m/{made.id}/rotate", {}))
    assert ask(rotated.key, "/share/m").status == 200
    ordered(ask(admin, f"/keys/m/{made.id}/revoke", {}))
    assert ask.key("m", made.id).revoked
    assert ask.ledgers["m"].find_key(rotated.key) is None
    ordered(ask(admin, "/projects/m", {"name": "wards", "budget": 0.5}))
    got = ask(admin, "/keys/m")
    listing = msgspec.json.decode(got.body, type=KeyListing)
    assert [(key.name, key.revoked) for key in listing.keys] == [("Ms Key", False), ("Ward 3", True)]
    assert listing.projects[0].budget == pytest.approx(0.5)
    secret = rotated.key.split("_", 2)[2]
    assert secret not in got.body.decode()
    assert ask.key("m", made.id).hash not in got.body.decode()


def test_only_the_scope_for_keys_administers_and_it_does_nothing_else(ask, admin):
    tokens = {
        scope: ask.ledgers["m"].add_key(f"a key to {scope}", scopes=[scope]) for scope in ("ask", "budget", "admin")
    }
    elsewhere = ask.ledgers["n"].add_key("Mr Other", scopes=["keys"])
    for route in (route for route in ROUTES if route.scope == "keys"):
        path = route.path.replace("{name}", "m").replace("{id}", "1")
        order = None if route.method == "GET" else {}
        assert {ask(token, path, order).code for token in tokens.values()} == {"forbidden"}, path
        assert ask(elsewhere, path, order).code == "unauthenticated"
    for path in ("/", "/metrics", "/budget/m", "/share/m"):
        assert ask(admin, path).code == "forbidden", path
    assert ask(admin, "/v2/models/m/infer", features([1, 0, 0])).code == "forbidden"
    assert ask.ledgers["m"].view().entries == 5


@pytest.mark.parametrize("scope", ["admin", "keys"])
def test_a_stolen_key_makes_nobody_an_owner(scope, ask, admin):
    owner = ask.ledgers["m"].add_key("Owner", scopes=[scope, "ask"]).split("_")[1]
    assert ask(admin, "/keys/m/add", {"name": "Mallory", "scopes": [scope]}).code == "bad_request"
    for order in ("rotate", "change", "revoke", "extend"):
        body = {"models": ["n"]} if order == "extend" else {}
        assert ask(admin, f"/keys/m/{owner}/{order}", body).code == "forbidden"
    own = admin.split("_")[1]
    assert ask(admin, f"/keys/m/{own}/change", {"quota": 1}).code == "forbidden"
    assert ask.ledgers["m"].find_key(admin) is not None


def test_a_key_of_an_organisation_is_one_key_in_several_models(ask):
    admin = ask.ledgers["m"].add_key("Ms Key", scopes=["keys"])
    here = ask.ledgers["m"]
    made = ordered(ask(admin, "/keys/m/add", {"name": "City clinic"}))
    assert ask(admin, f"/keys/m/{made.id}/extend", {"models": ["n"]}).code == "forbidden"  # not hers
    ask.ledgers["n"].copy_key(here.state().keys[admin.split("_")[1]])
    assert ordered(ask(admin, f"/keys/m/{made.id}/extend", {"models": ["n"], "budget": 0.02})).models == ["m", "n"]
    for name in ("m", "n"):
        assert ask(made.key, f"/v2/models/{name}/infer", features([1, 0, 0])).status == 200
        assert ask(made.key, f"/share/{name}").json["key"] == made.id
    assert ask(made.key, "/share/n").json["budget"] == pytest.approx(0.02)
    names = [one["name"] for one in ask(made.key, "/v2/repository/index", {}).json]
    assert names == ["m", "n"]
    rotated = ordered(ask(admin, f"/keys/n/{made.id}/rotate", {}))
    assert rotated.models == ["n", "m"]
    assert {ask.ledgers[name].find_key(rotated.key).name for name in ("m", "n")} == {"City clinic"}
    assert [ask.ledgers[name].find_key(made.key) for name in ("m", "n")] == [None, None]
    assert sorted(ordered(ask(admin, f"/keys/m/{made.id}/revoke", {})).models) == ["m", "n"]
    assert [ask.ledgers[name].find_key(rotated.key) for name in ("m", "n")] == [None, None]


def test_another_key_with_the_same_id_is_left_alone(ask, admin):
    here, there = ask.ledgers["m"], ask.ledgers["n"]
    there.copy_key(here.state().keys[admin.split("_")[1]])
    token = here.add_key("Ward 3")
    id = token.split("_")[1]
    with there.change() as change:
        twin = {"id": id, "name": "Ward 3", "scopes": ["ask"], "hash": "0" * 64, "created": change.at}
        change.append("key_added", {"key": twin})
    assert ordered(ask(admin, f"/keys/m/{id}/revoke", {})).models == ["m"]
    assert not ask.key("n", id).revoked


def test_with_four_eyes_nobody_gives_more_alone(tmp_path):
    with administering(tmp_path, four_eyes=True) as ask:
        ledger = ask.ledgers["m"]
        first, second = (ledger.add_key(name, scopes=["keys"]) for name in ("First", "Second"))
        asker = ledger.add_key("Ward 1", budget=0.2).split("_")[1]
        made = ordered(ask(first, "/keys/m/add", {"name": "Ward 3"}))
        assert ledger.find_key(made.key) is None
        (waiting,) = ask(second, "/keys/m").json["proposals"]
        assert (waiting["id"], waiting["kind"], waiting["by"]["name"]) == (made.proposal, "key_added", "First")
        assert "hash" not in waiting["change"]["key"]
        assert ask(first, f"/proposals/m/{made.proposal}/approve", {}).code == "bad_request"
        assert ledger.find_key(made.key) is None
        ordered(ask(second, f"/proposals/m/{made.proposal}/approve", {}))
        assert ledger.find_key(made.key).name == "Ward 3"
        assert ask(second, f"/proposals/m/{made.proposal}/approve", {}).code == "bad_request"  # once
        for order in ({"budget": 0.3}, {"lift": ["budget"]}, {"budget": 0.1, "quota": 5, "lift": ["budget"]}):
            assert ordered(ask(first, f"/keys/m/{asker}/change", order)).proposal
            assert ask.key("m", asker).cost == ledger.state().capacity[0] // 5
        assert not ordered(ask(first, f"/keys/m/{asker}/change", {"budget": 0.1, "quota": 5})).proposal
        wider = ordered(ask(first, f"/keys/m/{asker}/change", {"quota": 6}))
        assert wider.proposal
        assert ask.key("m", asker).quota == 5
        rotated = ordered(ask(first, f"/keys/m/{asker}/rotate", {}))
        assert ledger.find_key(rotated.key) is None
        ordered(ask(second, f"/proposals/m/{rotated.proposal}/reject", {}))
        assert ask(second, f"/proposals/m/{rotated.proposal}/approve", {}).code == "bad_request"
        ordered(ask(first, f"/keys/m/{asker}/revoke", {}))  # taking away needs nobody else
        assert ask.key("m", asker).revoked
        ledger.revoke_key(first.split("_")[1])
        assert "no longer valid" in ask(second, f"/proposals/m/{wider.proposal}/approve", {}).json["error"]
        assert ledger.verify().problems == ()


def opens(ask, token):
    return [ask.ledgers[name].find_key(token) is not None for name in ("m", "n")]


@contextmanager
def of_two_persons(home, **told):
    """Two models whose administrators come by tokens, so that each has another key in each model."""
    with administering(home, "m", "n", **told) as ask:
        for ledger in ask.ledgers.values():
            for name in ("ann", "bob"):
                ledger.add_subject(name, issuer="i", subject=name, most=9, scopes=["keys"])
        for name in ("m", "n"):
            admit(ask, name)
        yield ask


def admit(ask, name):
    ledger = ask.ledgers[name]
    found = lambda token: ledger.find_subject("i", token) or ledger.find_key(token)  # noqa: E731
    ask.access.register(name, found)


def test_one_person_is_one_person_in_whatever_model_she_asks(tmp_path):
    with of_two_persons(tmp_path, four_eyes=True) as ask:
        made = ordered(ask("ann", "/keys/m/add", {"name": "Ward 3", "unlimited": True}))
        for name in ("n", "m", "n"):
            assert ask("ann", f"/proposals/{name}/{made.proposal}/approve", {}).code == "bad_request"
            admit(ask, "m")  # as a reload does, which changes the order of the models
        assert opens(ask, made.key) == [False, False]
        assert ordered(ask("bob", f"/proposals/m/{made.proposal}/approve", {})).models == ["m"]
        assert opens(ask, made.key) == [True, False]
        more = ordered(ask("ann", f"/keys/m/{made.id}/extend", {"models": ["n"]})).proposal
        assert ask("ann", f"/proposals/n/{more}/approve", {}).code == "bad_request"
        ordered(ask("bob", f"/proposals/n/{more}/approve", {}))
        assert opens(ask, made.key) == [True, True]
        for ledger in ask.ledgers.values():
            ids = {line["by"]["id"] for line in audit_lines(ledger) if line["event"] != "opened"}
            assert ids <= ledger.state().keys.keys()


def test_a_change_is_approved_with_a_valid_key_of_the_ledger_for_keys(ask, admin):
    ledger = ask.ledgers["m"]
    asker, gone = ledger.add_key("Ward 1"), ledger.add_key("Gone", scopes=["keys"])
    ledger.revoke_key(gone.split("_")[1])
    ledger.add_key("Ward 3", by={"via": "http", "id": admin.split("_")[1], "name": "Ms Key"}, proposal="p")
    for id in ("", "unknown", asker.split("_")[1], gone.split("_")[1]):
        with pytest.raises(InvalidInput, match="must be approved with"):
            ledger.decide_proposal("p", by={"via": "http", "id": id, "name": "?"}, approve=True)


@pytest.fixture
def shared(tmp_path):
    """Return what asks two models, and an administrator and a key of both."""

    @contextmanager
    def share(**told):
        with of_two_persons(tmp_path, **told) as ask:
            token = ask.ledgers["m"].add_key("City clinic")
            ask.ledgers["n"].copy_key(ask.key("m", token.split("_")[1]))
            yield ask, token, token.split("_")[1]

    return share


def test_with_four_eyes_a_new_secret_opens_all_models_at_once(shared):
    with shared(four_eyes=True) as (ask, leaked, id):
        only_m = ask.ledgers["m"].add_key("Mr Half", scopes=["keys"])
        rotated = ordered(ask("ann", f"/keys/m/{id}/rotate", {}))
        assert rotated.models == ["m", "n"]
        assert ask(only_m, f"/proposals/m/{rotated.proposal}/approve", {}).code == "forbidden"
        assert (opens(ask, leaked), opens(ask, rotated.key)) == ([True, True], [False, False])
        ordered(ask("bob", f"/proposals/n/{rotated.proposal}/approve", {}))
        assert (opens(ask, leaked), opens(ask, rotated.key)) == ([False, False], [True, True])
        ordered(ask("ann", f"/keys/m/{id}/revoke", {}))
        assert opens(ask, rotated.key) == [False, False]


def test_a_secret_is_exchanged_in_all_models_or_in_none(shared, monkeypatch):
    with shared() as (ask, leaked, id):
        with monkeypatch.context() as broken:
            broken.setattr(ask.ledgers["n"], "rotate_key", refuse)
            for _ in range(3):
                assert ask("ann", f"/keys/m/{id}/rotate", {}).status == 503
        assert opens(ask, leaked) == [True, True]
        ask.ledgers["m"].rotate_key(id)  # such as by a command for one model alone
        assert opens(ask, leaked) == [False, True]
        rotated = ordered(ask("ann", f"/keys/m/{id}/rotate", {}))
        assert (rotated.models, opens(ask, leaked), opens(ask, rotated.key)) == (["m", "n"], [False] * 2, [True] * 2)


def refuse(*arguments, **told):
    raise LedgerRefused("broken", cause="io")


def test_a_revoked_key_opens_no_other_model(tmp_path):
    with of_two_persons(tmp_path, four_eyes=True) as ask:
        ledger = ask.ledgers["m"]
        (first, one), (second, two) = ((token := ledger.add_key(name), token.split("_")[1]) for name in ("A", "B"))
        waiting = [ordered(ask("ann", f"/keys/m/{id}/extend", {"models": ["n"]})).proposal for id in (one, two)]
        ordered(ask("ann", f"/keys/m/{one}/revoke", {}))
        ledger.rotate_key(two)
        for proposal in waiting:  # by the secret that was revoked or exchanged meanwhile
            assert ask("bob", f"/proposals/n/{proposal}/approve", {}).code == "bad_request"
            ordered(ask("bob", f"/proposals/n/{proposal}/reject", {}))
        for order in ("extend", "rotate"):
            body = {"models": ["n"]} if order == "extend" else {}
            assert "revoked" in ask("ann", f"/keys/m/{one}/{order}", body).json["error"]
        with pytest.raises(InvalidInput, match="revoked"):
            ask.ledgers["n"].copy_key(ask.key("m", one))
        assert [opens(ask, token) for token in (first, second)] == [[False, False]] * 2


def test_proposals_are_bounded_and_expire(tmp_path, monkeypatch):
    with administering(tmp_path, four_eyes=True) as ask:
        first, second = (ask.ledgers["m"].add_key(name, scopes=["keys"]) for name in ("First", "Second"))
        made = [ask(first, "/keys/m/add", {"name": f"Ward {number}"}) for number in range(21)]
        assert [got.status for got in made] == [200] * 20 + [400]
        later = time.time() + 86_401
        monkeypatch.setattr("quorate.core.ledger.chain.time.time", lambda: later)
        assert ask(second, f"/proposals/m/{made[0].json['proposal']}/approve", {}).code == "bad_request"
        assert ask(first, "/keys/m/add", {"name": "Ward 99"}).status == 200
        assert len(ask.ledgers["m"].state().proposals) == 1


def test_requests_are_bounded_by_caller(ask, admin):
    other = ask.ledgers["m"].add_key("Mr Key", scopes=["keys"])
    codes = [ask(admin, "/keys/m").status for _ in range(_PER_MINUTE + 1)]
    assert codes.count(429) >= 1 or codes == [200] * (_PER_MINUTE + 1)  # a minute may have passed
    assert codes[:_PER_MINUTE].count(200) >= _PER_MINUTE - 1
    assert ask(other, "/keys/m").status == 200


def test_the_trail_names_who_did_what(ask, admin):
    made = ordered(ask(admin, "/keys/m/add", {"name": "Ward 3", "budget": 0.2}))
    ordered(ask(admin, f"/keys/m/{made.id}/change", {"budget": 0.1}))
    ask.ledgers["m"].revoke_key(made.id)
    got = ask(admin, "/audit/m")
    log = msgspec.json.decode(got.body, type=AuditLog)
    by = [(line.event, line.by and (line.by["via"], line.by["name"])) for line in log.lines]
    user = by[1][1][1]
    assert by == [
        ("opened", None),
        ("key_added", ("command", user)),
        ("key_added", ("http", "Ms Key")),
        ("key_changed", ("http", "Ms Key")),
        ("key_revoked", ("command", user)),
    ]
    key = log.lines[2].details["key"]
    assert (key["name"], key["budget"], key["scopes"]) == ("Ward 3", pytest.approx(0.2), ["ask"])
    assert log.lines[3].details == {"id": made.id, "values": {"budget": pytest.approx(0.1)}}
    assert made.key.split("_", 2)[2] not in got.body.decode()
    assert ask.key("m", made.id).hash not in got.body.decode()
    assert log.after == 5
    later = msgspec.json.decode(ask(admin, "/audit/m?after=3").body, type=AuditLog)
    assert ([line.seq for line in later.lines], later.after) == ([4, 5], 5)
    assert ask(admin, "/audit/m?after=-1").code == "bad_request"


def test_the_trail_of_a_model_that_hides_its_entries_is_for_its_owner(ask, admin):
    """Numbers of entries show that records came or went, which only the owner may see."""
    ask.models["m"].hides_entries = True
    owner = ask.ledgers["m"].add_key("Owner", scopes=["admin", "keys"])
    assert (ask(admin, "/audit/m").code, ask(owner, "/audit/m").status) == ("forbidden", 200)
    assert b"entries" not in ask(admin, "/keys/m").body


@pytest.fixture
def trail(ask, admin):
    for number in range(3):
        ask(admin, "/keys/m/add", {"name": f"Ward {number}"})
    ledger = ask.ledgers["m"]
    return ledger, [json.dumps(line) for line in audit_lines(ledger)]


def test_lines_that_were_changed_removed_or_made_up_show(trail):
    ledger, lines = trail
    assert check_audit(ledger, lines) == len(lines) == 5
    assert check_audit(ledger, lines[2:]) == 3  # a part of the trail
    edited = lines[2].replace("Ward 0", "Ward 9")
    for changed in (
        [*lines[:2], edited, *lines[3:]],
        [*lines[:2], *lines[3:]],
        [*lines, lines[-1].replace('"seq": 5', '"seq": 6')],
        [*lines, "{}"],
        [*lines, "no JSON"],
        [json.dumps(json.loads(lines[1]) | {"seal": "0" * 64})],
    ):
        with pytest.raises(LedgerRefused):
            check_audit(ledger, changed)


def test_lines_outlive_a_compaction_and_show_a_rollback(trail, tmp_path):
    ledger, lines = trail
    ledger.compact()
    assert check_audit(ledger, lines) == 5
    with pytest.raises(LedgerRefused, match="line 3 was changed"):
        check_audit(ledger, [*lines[:2], lines[2].replace("Ward 0", "Ward 9")])
    later = [json.dumps(line) for line in audit_lines(ledger)]
    assert [json.loads(line)["event"] for line in later] == ["compacted"]
    assert "hash" not in later[0]
    younger = Ledger.create(tmp_path / "b.sqlite", Budget(epsilon=1.0, delta=0.0), fingerprint="model m")
    with pytest.raises(LedgerRefused):
        check_audit(younger, lines)


def test_refusals_are_lines_with_seals(ask, admin):
    ledger = ask.ledgers["m"]
    asker = ledger.add_key("Ward 3")
    assert ask(asker, "/keys/m").code == "forbidden"
    ask._ask.run(ask.models["m"].write_notes())
    (line,) = refusal_lines(ledger)
    assert (line["event"], line["by"]["name"], line["code"]) == ("refused", "Ward 3", "forbidden")
    assert check_audit(ledger, [json.dumps(line)]) == 1
    with pytest.raises(LedgerRefused):
        check_audit(ledger, [json.dumps(line | {"code": "quota_spent"})])


NAMES = st.sampled_from(["name", "scopes", "project", "budget", "quota", "per_minute", "no_quorums", "lift", "models"])
MORE = st.sampled_from(["grace_hours", "expires_days", "unlimited", "per_phase", "hash", "id", "by", "other"])
WILD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["m", "n", "keys"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)
PATHS = [route.path for route in ROUTES if route.scope == "keys" and route.method == "POST"]


@pytest.mark.parametrize("four_eyes", [False, True])
def test_no_order_breaks_the_server_or_makes_an_owner(four_eyes, tmp_path, monkeypatch):
    monkeypatch.setattr("quorate.service._administration._PER_MINUTE", 10**9)
    with administering(tmp_path, "m", "n", four_eyes=four_eyes) as ask:
        ledger = ask.ledgers["m"]
        admin = ledger.add_key("Ms Key", scopes=["keys"])
        ask.ledgers["n"].copy_key(ledger.state().keys[admin.split("_")[1]])
        ids = [ledger.add_key("Ward 1").split("_")[1], admin.split("_")[1], "x", "..%2f"]

        @settings(max_examples=150, deadline=None)
        @given(
            st.sampled_from(PATHS),
            st.sampled_from(ids),
            st.dictionaries(NAMES | MORE, WILD, max_size=4) | WILD,
            st.sampled_from(["m", "n", "o"]),
        )
        def order(path, id, body, name):
            text = json.dumps(body).encode()
            got = ask(admin, path.replace("{id}", id).replace("{name}", name), text)
            assert got.status in (200, 400, 401, 403, 404), got.body

        order()
        for made in ask.ledgers.values():
            assert made.verify().problems == ()
            strong = [key.name for key in made.state().keys.values() if not set(key.scopes) <= {"ask", "budget"}]
            assert strong == ["Ms Key"]
            assert not any(key.revoked for key in made.state().keys.values() if key.name == "Ms Key")
