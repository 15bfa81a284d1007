"""The pages: every value escaped, nothing loaded, nothing secret shown, and the figures those of the ledger."""

import base64
import dataclasses
import hashlib
import html
import re
from html.parser import HTMLParser

import pytest

from quorate.core.ledger import Activity, Key, LedgerView, Refusal, Verification
from quorate.core.ledger._views import LeaseView
from quorate.core.privacy import Cost
from quorate.service.pages import CONTENT_SECURITY_POLICY, ModelView, dashboard_page, docs_page
from quorate.service.pages._dashboard import chart_of
from quorate.service.pages._rendering import STYLE, STYLE_HASH, figure, format_remaining, moment

AT = 1_800_000_030.0
MINUTE = 60 * int(AT // 60)
SCRIPT = "<script>alert(1)</script>"
QUOTES = "\"'><img src=x onerror=alert(1)>"
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Outline(HTMLParser):
    """Every element with its attributes, and whether they are closed in order."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.open = [], []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def of(self, tag, **wanted):
        return [a for t, a in self.elements if t == tag and all(a.get(name) == value for name, value in wanted.items())]


def key(name="alice", **changed):
    made = {"id": "a1b2", "name": name, "scopes": ("ask",), "hash": "5ec4e7" * 8, "created": AT - 86_400}
    return Key(**(made | changed))


def ledger(left=1.0, keys=(), leases=(), **changed):
    made = {"place": "/models/m/ledger.sqlite", "entries": 1, "head": "ab" * 32, "epsilon": 1.0, "delta": 1e-6}
    made |= {"order": 10.0, "capacity": Cost(1.0), "spent": Cost(1.0 - left), "left": left, "spent_epsilon": 0.0}
    made |= {"leases": tuple(leases), "keys": tuple(keys), "moved": None}
    return LedgerView(**(made | changed))


def model(name="triage", *, view=None, activity=(), refusals=(), verification=None):
    return ModelView(
        name=name,
        claim="(1, 1e-06)-differentially private under replacement of one row",
        view=view or ledger(),
        activity=list(activity),
        refusals=list(refusals),
        verification=verification,
        requests_url=f"/v2/models/{name}/infer",
    )


def minute(ago, answered=0, no_quorums=0, repeated=0, refused=0):
    return Activity(
        minute=MINUTE - 60 * ago, answered=answered, no_quorums=no_quorums, repeated=repeated, refused=refused
    )


def words(page):
    return re.sub(
        r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", re.sub(r"<style>.*?</style>", "", page, flags=re.S)))
    )


def test_a_new_model_with_an_empty_ledger():
    page = dashboard_page([model()], at=AT)
    bar = Outline(page).of("div", role="progressbar")
    assert [b["aria-valuenow"] for b in bar] == ["100.00"]
    assert [b["data-left"] for b in bar] == ["1.0"]
    text = words(page)
    assert "All answers of this model, taken together, are (1, 1e-06)-differentially private" in text
    assert "Keys None to show." in text
    assert text.count("Nothing was asked.") == 2
    assert "ledger not verified yet" in text


def test_names_are_escaped_everywhere():
    for bad in (SCRIPT, QUOTES):
        view = ledger(
            0.5,
            keys=[key(bad, id=bad, scopes=(bad,)), key(bad, id="gone", revoked=True)],
            leases=[LeaseView(id=bad, owner=bad, share=0.1)],
            place=bad,
            head=bad,
        )
        refusals = [Refusal(at=AT, caller=bad, code=bad)]
        verification = Verification(entries=1, head=bad, problems=(bad,))
        made = model(bad, view=view, refusals=refusals, verification=verification)
        for page in (dashboard_page([made], at=AT), dashboard_page([made, made], at=AT)):
            outline = Outline(page)
            assert not outline.of("script")
            assert not outline.of("img")
            assert not [name for _, attributes in outline.elements for name in attributes if name.startswith("on")]
            assert bad in words(page)


def test_the_description_of_the_api_is_escaped():
    bad = SCRIPT + QUOTES
    schema = {"type": "object", "description": bad, "properties": {bad: {"type": bad, "description": bad}}}
    content = {"content": {bad: {"schema": {"$ref": "#/components/schemas/A"}, "example": {bad: [bad]}}}}
    operation = {
        "tags": [bad],
        "summary": bad,
        "description": f"`{bad}`\n\n{bad}",
        "security": [{bad: [bad]}],
        "parameters": [{"name": bad, "in": bad, "description": bad, "schema": {"enum": [bad]}}],
        "requestBody": content | {"description": bad},
        "responses": {bad: content | {"description": bad, "headers": {bad: {"description": bad}}}},
    }
    document = {
        "info": {"title": bad, "version": bad, "description": bad},
        "tags": [{"name": bad, "description": bad}],
        "paths": {bad: {"post": operation}},
        "components": {"schemas": {"A": schema}, "securitySchemes": {bad: {"description": bad}}},
    }
    page = docs_page(document)
    outline = Outline(page)
    assert not outline.of("script")
    assert not outline.of("img")
    assert bad in words(page)


def test_a_description_that_points_to_itself_or_to_nothing():
    node = {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Node"}}}
    loop = {"$ref": "#/components/schemas/Loop"}
    responses = {"200": {"description": "a node", "content": {"application/json": {"schema": loop}}}}
    responses["404"] = {"$ref": "#/components/responses/Nowhere"}
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Node"}}}}
    document = {
        "paths": {"/node": {"put": {"requestBody": body, "responses": responses}}},
        "components": {"schemas": {"Node": node, "Loop": loop}},
    }
    assert "next" in words(docs_page(document))
    assert "404" in words(docs_page(document))
    Outline(docs_page({}))


@pytest.mark.parametrize(
    ("left", "shown", "said"),
    [
        (0.634172991, "63.41", "63.41%"),
        (0.57, "57.00", "57.00%"),
        (0.99999999, "99.99", "99.99%"),  # what is left is rounded down
        (1e-9, "0.00", "less than 0.01%"),
        (0.0, "0.00", "0.00%"),
    ],
)
def test_the_bar_is_the_ledger(left, shown, said):
    page = dashboard_page([model(view=ledger(left))], at=AT)
    (bar,) = Outline(page).of("div", role="progressbar")
    assert (bar["aria-valuenow"], bar["data-left"]) == (shown, repr(left))
    assert f"{said} of the budget left" in words(page)
    (drawn,) = Outline(page).of("rect", **{"class": "left"})
    assert float(drawn["width"]) == pytest.approx(100 * left, abs=1e-4)
    assert ("budget spent" in words(page)) == (left == 0)


def test_leases_that_are_out():
    leases = [LeaseView(id=f"l{n}", owner=f"host, process {n}", share=share) for n, share in ((1, 0.25), (2, 0.125))]
    page = dashboard_page([model(view=ledger(0.5, leases=leases))], at=AT)
    assert "host, process 1 l1 25.00%" in words(page)
    assert "leases out 2 " in words(page)
    assert "37.50% is with workers" in words(page)


def test_many_keys_fold_and_none_shows_its_hash():
    keys = [key(f"caller {place}", id=f"id{place}") for place in range(500)]
    keys += [key("old", id="gone", revoked=True), key("limited", id="lim", quota=200, used=50, per_minute=5)]
    page = dashboard_page([model(view=ledger(keys=keys))], at=AT)
    assert "5ec4e7" not in page
    assert len(Outline(page).of("details")) == 2
    text = words(page)
    assert "491 more keys in use" in text
    assert "1 revoked" in text
    assert "50 of 200, 5 a minute" in text
    assert "caller 499" in text


def test_activity_is_counted_once_and_no_older_than_a_day():
    activity = [minute(24 * 60, 1000), minute(24 * 60 - 1, 7, 1), minute(60, 5), minute(59, 3), minute(0, 2, 1, 4, 6)]
    page = dashboard_page([model(activity=activity)], at=AT)
    text = words(page)
    assert "6 new queries: 5 answered, 1 without a quorum. 4 answered again at no cost, 6 refused." in text
    assert "19 new queries: 17 answered, 2 without a quorum. 4 answered again at no cost, 6 refused." in text
    assert "answered, 24 hours 17 " in text
    assert "no quorum, 24 hours 2 " in text
    outline = Outline(page)
    assert [rect["x"] for rect in outline.of("rect", **{"class": "whole"})] == ["0", "590", "0", "450", "460", "470"]
    heights = [float(rect["height"]) for rect in outline.of("rect", **{"class": "answered"}) if "x" in rect]
    assert heights[:2] == [60.0, 40.0]  # 3 and 2 of 5


def test_one_no_quorum_can_be_seen_beside_a_million_answers():
    page = dashboard_page([model(activity=[minute(0, 999_999, 1)])], at=AT)
    parts = [rect for rect in Outline(page).of("rect", x="591") if rect["class"] != "whole"]
    assert {rect["class"] for rect in parts} == {"answered", "no-quorum"}
    assert all(float(rect["height"]) >= 1 and float(rect["y"]) >= 0 for rect in parts)
    assert sum(float(rect["height"]) for rect in parts) <= 100.01


def test_equal_refusals_are_one_row_that_names_the_key_and_says_what_the_code_means():
    refusals = [
        Refusal(at=AT - 1, caller="a1b2", code="quota_spent"),
        Refusal(at=AT - 2, caller="", code="new_code"),
        Refusal(at=AT - 3, caller="a1b2", code="quota_spent"),
    ]
    page = dashboard_page([model(view=ledger(keys=[key("alice")]), refusals=refusals)], at=AT)
    text = words(page)
    assert re.search(r"2027-01-15 08:00:29 2 alice quota_spent this key.s quota is used up", text)
    assert re.search(r"2027-01-15 08:00:28 1 without a key new_code", text)
    assert text.count("quota_spent") == 1


def test_a_ledger_that_is_not_sound_is_said_first():
    broken = Verification(entries=9, head="cd" * 32, problems=("entry 7 was edited",))
    page = dashboard_page([model("a"), model("b", verification=broken)], at=AT)
    outline = Outline(page)
    assert len(outline.of("div", role="alert")) == 1
    text = words(page)
    assert text.index("ledger not sound") < text.index("All answers of this model")
    assert "entry 7 was edited" in text
    sound = Verification(entries=9, head="cd" * 32, problems=())
    assert "sound when last read, to entry 9 ( cdcdcdcdcdcd… )" in words(
        dashboard_page([model(verification=sound)], at=AT)
    )


def test_a_ledger_that_cannot_be_read_is_said():
    refused = Verification(entries=0, head="", problems=(f"it was rolled back {SCRIPT}",))
    lost = dataclasses.replace(model("lost", verification=refused), view=None)
    for page in (dashboard_page([lost], at=AT), dashboard_page([lost, model("other")], at=AT)):
        assert len(Outline(page).of("div", role="alert")) == 1
        assert f"it was rolled back {SCRIPT}" in words(page)
        assert "ledger refused" in words(page)
    assert len(Outline(page).of("div", role="progressbar")) == 1


def test_the_pages_load_nothing_and_fit_a_strict_policy():
    document = {"info": {"title": "t"}, "paths": {"/a": {"get": {"responses": {"200": {"description": "d"}}}}}}
    full = model(view=ledger(0.5, keys=[key(quota=5)]), activity=[minute(0, 1, 1)])
    for page in (dashboard_page([], at=AT), dashboard_page([full], at=AT), docs_page(document)):
        outline = Outline(page)
        assert not outline.of("script")
        assert not [a for _, a in outline.elements if "style" in a], "an inline style is against the policy"
        assert all(a["href"].startswith("data:image/svg+xml,") for a in outline.of("link"))
        assert all(a["href"].startswith(("/", "#")) for a in outline.of("a"))
        assert "url(" not in page
        assert "@import" not in page
        (style,) = re.findall(r"<style>(.*?)</style>", page, flags=re.S)
        assert style == STYLE
        hashed = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        assert f"sha256-{hashed}" == STYLE_HASH
        assert f"'{STYLE_HASH}'" in CONTENT_SECURITY_POLICY
        assert CONTENT_SECURITY_POLICY.startswith("default-src 'none';")


def test_figures_are_written_for_people_and_never_say_more_than_there_is():
    assert [figure(value) for value in (12345, 0.41237, 1e-06)] == ["12,345", "0.4124", "1e-6"]
    assert [format_remaining(share) for share in (0.57, 0.99999, 1.0)] == ["57.00", "99.99", "100.00"]
    assert moment(0.0) == "1970-01-01 00:00:00"


def test_a_chart_puts_a_minute_in_its_place():
    chart = chart_of([Activity(3600, 4, 1, 2, 0)], at=3610.0, title="Last hour", spans=60, minutes=1)
    assert (chart.top, chart.half, chart.bars[0].x) == (5, None, 590)
    assert chart.bars[0].label == "01:00: 4 answered, 1 without a quorum"
    assert chart.summary.startswith("5 new queries: 4 answered, 1 without a quorum. 2 answered again")
