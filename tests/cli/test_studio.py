"""`quorate studio` over HTTP: who may speak to it, what it shows, what it refuses, and that it is `quorate start`."""

import asyncio
import base64
import contextlib
import csv
import gzip
import hashlib
import html
import io
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
import zipfile
from html.parser import HTMLParser
from pathlib import Path

import httpx
import numpy as np
import pytest

from quorate.cli import main
from quorate.cli.studio import pages
from quorate.cli.studio.downloads import to_notebook
from quorate.cli.studio.pages import make_studio
from quorate.cli.studio.project import STOPS, Project, safe_name
from quorate.cli.studio.runs import Run
from quorate.core.errors import InvalidInput
from quorate.release import GroupRelease
from quorate.tables import Schema, read_table
from quorate.tables.look import look_at
from quorate.tables.results import excel_bytes, parquet_bytes

PORT = 8901
ORIGIN = f"http://127.0.0.1:{PORT}"
EVIL = '<script>alert("x")</script>'


def write_clinic(path, rows=3000, **more):
    """Write visits of a clinic, with any more columns of one value."""
    draw = np.random.default_rng(5)
    age, month = draw.integers(18, 90, rows), draw.integers(1, 7, rows)
    ill = np.where(age + draw.normal(0, 9, rows) > 55, "yes", "no")
    columns = {
        "patient_id": draw.integers(0, rows // 2, rows),
        "age": age,
        "cost": draw.gamma(4, 100, rows).round(),
        "region": draw.choice(["north", "south", "east"], rows),
        "visited": [f"2024-{number:02d}-15" for number in month],
        "ill": ill,
    } | {name: [value] * rows for name, value in more.items()}
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


class Browser:
    """A browser before the application itself: it keeps cookies, and follows no redirect."""

    def __init__(self, app, **headers):
        root = app.address.partition("?")[0]
        transport = httpx.ASGITransport(app)
        self._client = httpx.AsyncClient(transport=transport, base_url=root, headers=headers, timeout=60)
        self.headers = self._client.headers

    async def send(self, method, path, **more):
        return await self._client.request(method, path, **more)

    def request(self, method, path, **more):
        return asyncio.run(self.send(method, path, **more))

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def post(self, path, **more):
        return self.request("POST", path, **more)

    def put(self, path, **more):
        return self.request("PUT", path, **more)


@pytest.fixture
def studio(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = make_studio(tmp_path, port=PORT)
    yield made
    made.project.close()


def enter(studio):
    return f"/?{studio.guard.address.partition('?')[2]}"


@pytest.fixture
def client(studio):
    """The browser that has come with the token."""
    opened = Browser(studio.guard, origin=ORIGIN)
    assert opened.get(enter(studio)).status_code == 303
    return opened


@pytest.fixture
def table(client, tmp_path):
    """The client, with a table."""
    drop(client, write_clinic(tmp_path.parent / f"{tmp_path.name}-clinic.csv"), "clinic.csv")
    return client


def drop(client, path, name=None, **query):
    answer = client.put("/table", params={"name": name or path.name} | query, content=path.read_bytes())
    assert answer.status_code == 200, answer.text
    return answer.json()


def post(client, path, version=None, **fields):
    """Send a form of the page that is shown now."""
    if version is None:
        shown = re.search(r'name="version" value="(\d+)"', client.get("/columns").text)
        version = shown[1]
    return client.post(path, data={"version": version} | fields)


def use(columns):
    return {f"use-{number}": "on" for number in range(columns)}


def reason(answer):
    return html.unescape(re.search(r'role="alert"><p>(.*?)</p>', answer.text, re.DOTALL)[1])


class TestWhoMaySpeak:
    def test_the_token_opens_one_session_with_a_strict_cookie(self, studio):
        browser = Browser(studio.guard)
        assert browser.get("/").status_code == 403
        assert browser.get("/?token=wrong").status_code == 403
        entered = browser.get(enter(studio))
        cookie, root = entered.headers["set-cookie"].lower(), studio.guard.address[len(ORIGIN) :].partition("?")[0]
        assert (entered.status_code, entered.headers["location"]) == (303, root)
        assert f"path={root};" in cookie  # other servers on this machine, at other ports, do not see it
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert browser.get("/").status_code == 200
        outside = {"cookie": entered.headers["set-cookie"].partition(";")[0]}
        assert browser.get(f"{ORIGIN}/", headers=outside).status_code == 403
        other = Browser(studio.guard)
        assert other.get(enter(studio)).status_code == 403  # it was used

    @pytest.mark.parametrize(
        "host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", f"127.0.0.1.evil:{PORT}", ""]
    )
    def test_another_host_is_refused_even_with_the_cookie(self, client, host):
        """A name that points at this machine, by DNS rebinding, is another host."""
        assert client.get("/", headers={"host": host}).status_code == 421

    @pytest.mark.parametrize(
        "origin", ["http://evil.example", "null", "http://127.0.0.1:8902", f"https://127.0.0.1:{PORT}", ""]
    )
    def test_another_origin_changes_nothing(self, table, studio, origin):
        before = studio.project.version
        for method, path in (("POST", "/columns"), ("POST", "/run"), ("POST", "/cancel"), ("PUT", "/table?name=a.csv")):
            answer = table.request(method, path, headers={"origin": origin}, content=b"version=1")
            assert answer.status_code == 403
        assert studio.project.version == before

    def test_a_request_without_an_origin_changes_nothing(self, table):
        del table.headers["origin"]
        assert table.post("/columns", data={"version": "1"}).status_code == 403

    def test_pages_run_no_script_and_load_nothing_but_their_own(self, table):
        page = table.get("/columns")
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        for kind in ("style", "script"):
            text = re.search(rf"<{kind}>(.*?)</{kind}>", page.text, re.DOTALL)[1]
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert f"{kind}-src 'sha256-{digest}'" in policy
        assert not re.findall(r'(?:src|href)="(?:https?:)?//', page.text)
        assert page.headers["cache-control"] == "no-store"


class TestColumns:
    def test_they_are_what_look_sees(self, table, studio, tmp_path):
        shown = table.get("/columns").text
        for column in look_at(read_table(tmp_path / "clinic.csv", role="private")).columns:
            row = re.search(rf'<tr data-name="{column.name}">.*?</tr>', shown, re.DOTALL)[0]
            assert column.use in row
        assert 'aria-label="use patient_id" disabled' in shown  # named like an id

    def test_a_name_with_html_is_text(self, client, tmp_path):
        drop(client, write_clinic(tmp_path / "evil.csv", **{EVIL: "1"}))
        assert post(client, "/columns", kinds="learned", **use(7)).status_code == 303
        for path in ("/columns", "/goal"):
            shown = client.get(path).text
            assert EVIL not in shown
            assert html.escape(EVIL, quote=False).replace('"', "&#34;") in shown

    def test_a_declaration_needs_its_owner_to_have_checked_it(self, table):
        kinds = {"kinds": "declared", "use-1": "on", "kind-1": "number", "low-1": "0", "high-1": "120"}
        assert "tick that" in reason(post(table, "/columns", **kinds))
        assert post(table, "/columns", **kinds, checked="yes").status_code == 303

    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ({"kind-1": "number", "low-1": "old"}, "column 'age': low must be a number"),
            ({"kind-1": "number", "low-1": "9", "high-1": "1"}, "age"),
            ({"kind-1": "date"}, "bounds"),
            ({"kind-1": "category", "categories-1": ""}, "categor"),
            ({"kind-1": "planet"}, "kind must be"),
        ],
    )
    def test_a_wrong_declaration_is_refused(self, table, fields, said):
        answer = post(table, "/columns", kinds="declared", checked="yes", **{"use-1": "on"}, **fields)
        assert answer.status_code == 400
        assert said in reason(answer)

    def test_a_table_of_a_thousand_columns_is_one_page(self, client, tmp_path):
        write_clinic(tmp_path / "wide.csv", rows=60, **{f"x{number}": "1" for number in range(1000)})
        drop(client, tmp_path / "wide.csv")
        page = client.get("/columns").text
        assert page.count("<tr data-name=") == 1006
        assert "data-filter" in page
        assert post(client, "/columns", kinds="learned", **use(20)).status_code == 303  # 986 are left out

    def test_no_column_is_refused(self, table):
        assert "no column is used" in reason(post(table, "/columns", kinds="learned"))


class TestPlan:
    @pytest.mark.parametrize("goal", ["model", "predictions", "tables", "pairs"])
    def test_it_is_what_start_makes_of_the_same_answers(self, table, studio, capsys, goal):
        """Commands and script, to the last letter: there is no second implementation."""
        post(table, "/columns", kinds="learned", **use(6))
        forms = {
            "model": {"label": "ill"},
            "predictions": {"label": "ill", "queries": "40", "abstain": "on", "classes": "no,yes"},
            "tables": {"by": ["region", "visited:month"], "mean": ["cost"], "groups": "patient_id"},
            "pairs": {},
        }
        options = {
            "model": ["--label", "ill", "--queries", "any"],
            "predictions": ["--label", "ill", "--queries", "40", "--abstain", "--classes", "no,yes"],
            "tables": ["--by", "region,visited:month", "--mean", "cost", "--groups", "patient_id"],
            "pairs": [],
        }
        name = "tables" if goal == "pairs" else goal
        assert post(table, "/goal", goal=name, **forms[goal]).status_code == 303
        kind = "model" if goal in ("model", "predictions") else "tables"
        arguments = ["start", "clinic.csv", "--goal", kind, *options[goal], "--out", "quorate-studio", "--json"]
        for epsilon in (5.0, 10.0) if goal == "pairs" else (0.5, 1.0, 5.0):
            capsys.readouterr()
            assert main([*arguments, "--epsilon", str(epsilon)]) == 0
            printed = json.loads(capsys.readouterr().out)["commands"]
            job = studio.project.stops[STOPS.index(epsilon)].job
            page = f" --report {job.page}"
            assert [line.replace(page, "") for line in job.lines()] == printed
            assert job.script() == Path("quorate-studio/script.py").read_text()
            for file in Path("quorate-studio").iterdir():
                file.unlink()

    def test_the_expected_intervals_are_those_of_the_release(self, table, studio):
        post(table, "/columns", kinds="learned", **use(6))
        post(table, "/goal", goal="tables", by=["region"], mean=["cost"])
        for epsilon, stop in zip(STOPS, studio.project.stops, strict=True):
            expected = GroupRelease(["region"], means=["cost"], epsilon=epsilon, delta=1e-6).plan().to_pylist()
            assert stop.rows == expected
            assert {row["group of"] for row in expected} == {30, 100, 1000}
        shown = table.get("/plan").text
        assert [f'data-epsilon="{epsilon:g}"' in shown for epsilon in STOPS] == [True] * len(STOPS)

    def test_what_is_declared_is_in_the_schema_and_in_the_commands(self, table, studio):
        declared = {
            "kind-1": "number",
            "low-1": "0",
            "high-1": "120",
            "kind-3": "category",
            "categories-3": "north\r\nsouth",
        }
        declared |= {"kind-5": "category", "categories-5": "no\nyes"}
        fields = {"use-1": "on", "use-3": "on", "use-5": "on", "kinds": "declared", "checked": "yes"} | declared
        assert post(table, "/columns", **fields).status_code == 303
        assert post(table, "/goal", goal="model", label="ill").status_code == 303
        job = studio.project.stops[0].job
        schema = Schema.load("quorate-studio/schema.json")
        assert (schema.columns["age"].low, schema.columns["age"].high) == (0, 120)
        assert schema.columns["region"].categories == ("north", "south")
        assert set(schema.columns) == {"age", "region"}
        assert "--schema quorate-studio/schema.json" in job.lines()[0]
        assert "--classes no,yes --schema" in job.lines()[0]  # the declared categories of the label

    def test_what_is_not_used_is_not_declared(self, table, studio):
        """What look read of a column that its owner did not tick stays in the form, and out of schema and classes."""
        fields = {"use-1": "on", "kind-1": "number", "kinds": "declared", "checked": "yes"}
        assert post(table, "/columns", **fields).status_code == 303
        assert post(table, "/goal", goal="model", label="ill").status_code == 303
        assert set(Schema.load("quorate-studio/schema.json").columns) == {"age"}
        assert "--read-classes" in studio.project.stops[-1].job.lines()[0]
        assert re.search(r'name="categories-3"[^>]*>east\nnorth\nsouth<', table.get("/columns").text)

    def test_a_public_table_says_what_columns_hold(self, table, studio, tmp_path):
        public = write_clinic(tmp_path.parent / f"{tmp_path.name}-survey.csv", rows=300)
        answer = table.put("/public", params={"name": "survey.csv"}, content=public.read_bytes())
        assert answer.status_code == 200
        post(table, "/columns", kinds="public", **use(6))
        assert post(table, "/goal", goal="model", label="ill").status_code == 303
        assert "--public public/survey.csv" in studio.project.stops[0].job.lines()[0]

    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ({"goal": "model"}, "choose the column to predict"),
            ({"goal": "model", "label": "age"}, "no label with 2 to"),
            ({"goal": "model", "label": "ill", "groups": "ill"}, "cannot say whose row"),
            ({"goal": "predictions", "label": "ill", "queries": "many"}, "whole number"),
            ({"goal": "model", "label": "ill", "delta": "tiny"}, "delta must be a number"),
            ({"goal": "tables", "mean": "cost"}, "need --by"),
        ],
    )
    def test_what_cannot_be_planned_is_said(self, table, fields, said):
        post(table, "/columns", kinds="learned", **use(6))
        answer = post(table, "/goal", **fields)
        assert answer.status_code == 400
        assert said in reason(answer)

    def test_a_name_that_no_command_can_say_is_refused_before_a_run(self, client, studio, tmp_path):
        """--leave-out "ill,not" leaves out two other columns, and uses the one that its owner did not tick."""
        name = "ill,not"
        drop(client, write_clinic(tmp_path / "commas.csv", **{name: "1", "not": "1"}))
        names = studio.project.records.column_names
        ticks = {f"use-{number}": "on" for number, column in enumerate(names) if column != name}
        post(client, "/columns", kinds="learned", **ticks)
        assert post(client, "/goal", goal="tables").status_code == 303
        refusals = {stop.refusal for stop in studio.project.stops if "rename" in stop.refusal}
        assert refusals == {f"--leave-out takes no commas in a name and no spaces at its ends; rename {name!r}"}
        assert reason(post(client, "/run", stop="11")) in refusals

    def test_an_epsilon_out_of_reach_says_why_and_is_not_run(self, client, studio, tmp_path):
        drop(client, write_clinic(tmp_path / "small.csv", rows=60))
        post(client, "/columns", kinds="learned", **use(6))
        post(client, "/goal", goal="model", label="ill")
        assert studio.project.stops[0].refusal
        assert "out of reach" in client.get("/plan").text
        assert reason(post(client, "/run", stop="0")) == studio.project.stops[0].refusal
        assert not studio.project.runs

    def test_the_notebook_does_what_the_script_does(self, table, studio):
        post(table, "/columns", kinds="learned", **use(6))
        post(table, "/goal", goal="model", label="ill")
        script = post(table, "/script.py", stop="5").content.decode()
        answer = post(table, "/notebook.ipynb", stop="5")
        assert answer.headers["content-disposition"] == 'attachment; filename="notebook.ipynb"'
        cells = [("".join(cell["source"]), cell["cell_type"]) for cell in json.loads(answer.content)["cells"]]
        code = [text for text, kind in cells if kind == "code"]
        for text in code:
            compile(text, "cell", "exec")
        plain = re.sub(r"\n+", "\n", script.split('"""', 2)[2]).strip()
        assert re.sub(r"\n+", "\n", "\n".join(code)) == plain

    def test_a_notebook_is_valid(self):
        nbformat = pytest.importorskip("nbformat")
        nbformat.validate(nbformat.reads(to_notebook('"""About."""\n\nx = 1\n').decode(), as_version=4))


class Fields(HTMLParser):
    """What a browser sends of the form of a page that nobody has touched."""

    def __init__(self, page):
        super().__init__()
        self.form, self._select, self._area = {}, None, None
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        name, value = found.get("name"), found.get("value", "on")
        if tag == "input" and name and "disabled" not in found:
            if found.get("type") not in ("radio", "checkbox") or "checked" in found:
                self.form.setdefault(name, []).append(value)
        elif tag == "select":
            self._select = name
        elif tag == "option" and (self._select not in self.form or "selected" in found):
            self.form[self._select] = [value]
        elif tag == "textarea":
            self._area, self.form[name] = name, [""]

    def handle_endtag(self, tag):
        self._area = None if tag == "textarea" else self._area

    def handle_data(self, data):
        if self._area:
            self.form[self._area][0] += data


GOALS = {
    "model": {"label": "ill"},
    "predictions": {"label": "ill", "classes": "no,yes"},
    "tables": {},
    "groups": {"groups": "person", "goal": "tables"},
    "numbers": {"by": "region", "mean": "cost", "goal": "tables"},
}
ODD = {  # one record, by what it changes in its table
    "an empty column has a value": {"rare": "1"},
    "another one has a text": {"rare": "it hurts"},
    "a column has one more value than a constant": {"same": "2"},
    "a category occurs once": {"region": "Tuvalu"},
    "a number is a text": {"age": "old"},
    "a number is far away": {"age": "-1e300"},
    "a date is none": {"visited": "13/31/24"},
    "a comma is a decimal mark": {"cost": "3,5"},
    "all values are missing": dict.fromkeys(("age", "cost", "region", "visited", "rare", "same"), ""),
}


def write_with_one(path, **changes):
    """Write a table of which nothing but some values of one record is changed."""
    draw, rows = np.random.default_rng(3), 1200
    age = draw.integers(18, 90, rows)
    columns = {
        "person": [f"p{number // 2}" for number in range(rows)],
        "age": age,
        "cost": draw.integers(1, 999, rows),
        "region": draw.choice(["north", "south"], rows),
        "visited": ["2024-03-15"] * rows,
        "same": ["1"] * rows,
        "rare": [""] * rows,
        "ill": np.where(age > 55, "yes", "no"),
    }
    records = [dict(zip(columns, map(str, values), strict=True)) for values in zip(*columns.values(), strict=True)]
    records[7] |= changes
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(columns))
        writer.writeheader()
        writer.writerows(records)


def studio_files(client, studio, goal):
    """Return what the studio writes for the largest epsilon, where nobody changes a form but for the goal."""
    drop(client, Path("other.csv"), "clinic.csv")
    assert client.post("/columns", data=Fields(client.get("/columns").text).form).status_code == 303
    form = Fields(client.get("/goal").text).form | {"goal": goal} | GOALS[goal]
    assert client.post("/goal", data=form).status_code == 303
    job = studio.project.stops[-1].checked_job()
    return job.lines() + [job.script()] + [stop.rows for stop in studio.project.stops]


def start_files(goal):
    """Return what `quorate start` writes."""
    named = "model" if "label" in GOALS[goal] else "tables"
    options = [word for name, text in GOALS[goal].items() if name != "goal" for word in (f"--{name}", text)]
    Path("other.csv").replace("clinic.csv")
    out = Path("started")
    assert main(["start", "clinic.csv", "--goal", named, *options, "--epsilon", "10", "--out", str(out)]) == 0
    texts = {path.name: path.read_text() for path in out.iterdir()}
    shutil.rmtree(out)
    return texts


class TestNeighbours:
    """What is written with all defaults is the same for two tables that differ in one record.

    Only the classes of a label that nobody declares are read from it, and the claim calls them public.
    """

    @pytest.mark.parametrize("goal", GOALS)
    @pytest.mark.parametrize("way", ["studio", "start"])
    def test_no_record_decides_what_is_written(self, client, studio, way, goal):
        written = {}
        for change, values in ({"": {}} | ODD).items():
            write_with_one(Path("other.csv"), **values)
            written[change] = studio_files(client, studio, goal) if way == "studio" else start_files(goal)
        assert [change for change in ODD if written[change] != written[""]] == []

    def test_a_form_that_leaves_out_what_is_empty_is_caught(self, client, studio, monkeypatch):
        """The fault that the studio had: the columns of a release said whether one record was in the table."""
        opened = Project.open

        def leave_out_the_empty(project, source):
            opened(project, source)
            project.used |= {column.name: False for column in project.columns() if not column.values}

        monkeypatch.setattr(Project, "open", leave_out_the_empty)
        with pytest.raises(AssertionError, match="an empty column has a value"):
            self.test_no_record_decides_what_is_written(client, studio, "studio", "tables")

    def test_how_many_rows_a_person_has_is_not_written(self, client, studio):
        """Under the privacy of persons, one of them may have any number of rows."""
        written = []
        for more in (0, 40):
            for way in ("studio", "start"):
                write_with_one(Path("other.csv"))
                with Path("other.csv").open("a", encoding="utf-8") as file:
                    file.write("p3,40,5,north,2024-03-15,1,,no\n" * more)
                written.append(studio_files(client, studio, "groups") if way == "studio" else start_files("groups"))
        assert written[:2] == written[2:]
        assert "--synthetic 600 " in written[0][0]

    def test_nothing_that_look_has_read_is_declared_before_a_tick(self, client, studio):
        write_with_one(Path("other.csv"))
        drop(client, Path("other.csv"), "clinic.csv")
        form = Fields(client.get("/columns").text).form
        assert "checked" not in form
        assert form["kinds"] == ["learned"]
        assert "tick that" in reason(client.post("/columns", data=form | {"kinds": "declared"}))
        assert client.post("/columns", data=form).status_code == 303  # with all that look has read in its fields
        goal = Fields(client.get("/goal").text).form | {"label": "ill"}
        assert client.post("/goal", data=goal).status_code == 303
        assert "--schema" not in studio.project.stops[-1].checked_job().lines()[0]
        assert not Path("quorate-studio").exists()


class TestBadInput:
    @pytest.mark.parametrize(
        ("name", "content", "said"),
        [
            ("noise.csv", bytes(range(256)) * 9, "first line"),
            ("empty.csv", b"", "the file is empty"),
            ("header.csv", b"a,b\n", "no rows"),
            ("noise.parquet", b"PAR1 no", ""),
            ("noise.xlsx", b"PK no", ""),
            ("page.html", b"<html>", "must be a file that ends with"),
            ("", b"a\n1\n", "must be a file that ends with"),
        ],
    )
    def test_what_is_no_table_is_refused_and_not_kept(self, client, studio, tmp_path, name, content, said):
        answer = client.put("/table", params={"name": name}, content=content)
        assert answer.status_code == 400
        assert said in answer.json()["error"]
        assert studio.project.source is None
        assert list(tmp_path.iterdir()) == []

    def test_a_file_that_is_too_large_is_refused_before_and_while_it_is_read(self, client, tmp_path, monkeypatch):
        monkeypatch.setattr(pages, "MOST_BYTES", 1000)
        said = client.put("/table?name=a.csv", content=b"a\n" + b"1\n" * 1000).json()["error"]
        assert "quorate studio FILE" in said

        async def pieces():  # of which no header says how many there are
            for _ in range(10):
                yield b"1\n" * 100

        assert "larger than" in client.put("/table?name=a.csv", content=pieces()).json()["error"]
        assert list(tmp_path.iterdir()) == []

    def test_a_table_that_cannot_be_read_leaves_the_former_one(self, table, studio, tmp_path):
        before = (tmp_path / "clinic.csv").read_bytes()
        assert table.put("/table?name=clinic.csv", content=b"").status_code == 400
        assert (tmp_path / "clinic.csv").read_bytes() == before
        assert post(table, "/columns", kinds="learned", **use(6)).status_code == 303

    @pytest.mark.parametrize("ending", [".parquet", ".xlsx", ".csv.gz"])
    def test_other_formats_are_read(self, client, studio, tmp_path, ending):
        rows = read_table(write_clinic(tmp_path / "clinic.csv", rows=50), role="private")
        content = {
            ".parquet": parquet_bytes,
            ".xlsx": excel_bytes,
            ".csv.gz": lambda _: gzip.compress((tmp_path / "clinic.csv").read_bytes()),
        }[ending](rows)
        assert client.put("/table", params={"name": f"visits{ending}"}, content=content).status_code == 200
        assert studio.project.records.num_rows == 50

    def test_a_messy_table_is_read_and_its_problems_are_listed(self, client, tmp_path):
        (tmp_path / "messy.csv").write_text("age;paid\n" + "39;1.234,50\n" * 40 + "old;x\n40\n", encoding="utf-8")
        drop(client, tmp_path / "messy.csv")
        shown = html.unescape(client.get("/columns").text)
        assert "records with too few values: 1" in shown
        assert "column 'age': values that cannot be read as a number" in shown
        assert "1,234 has the decimal mark “,”, and 05/06/2024 has the day first" in shown

    @pytest.mark.parametrize(
        ("name", "safe"),
        [("../../etc/x.csv", "x.csv"), ("-x.csv", "x.csv"), ("a:b?.csv", "a_b_.csv"), ("..csv.csv", "csv.csv")],
    )
    def test_names_of_files_stay_in_the_folder(self, name, safe):
        assert safe_name(name) == safe

    def test_pages_without_a_table_say_what_comes_first(self, client):
        for path in ("/columns", "/goal", "/plan", "/run"):
            assert "drop a file first" in reason(client.get(path))
        assert client.get("/progress").status_code == 400

    def test_a_public_table_never_takes_the_place_of_the_private_one(self, client, studio, tmp_path):
        private = write_clinic(tmp_path.parent / f"{tmp_path.name}-private.csv")
        public = write_clinic(tmp_path.parent / f"{tmp_path.name}-public.csv", rows=300)
        for name in ("public-x.csv", "x.csv", ".public.csv"):
            drop(client, private, name)
            for other in ("x.csv", name):
                answer = client.put("/public", params={"name": other}, content=public.read_bytes())
                assert answer.status_code == 200
                assert studio.project.source.table.read_bytes() == private.read_bytes()
                assert studio.project.public.read_bytes() == public.read_bytes()

    def test_a_run_that_waits_for_another_tab_does_not_run_its_plan(self, table, studio, monkeypatch):
        """Both tabs show the same page, and the second one plans anew while the first one runs."""
        post(table, "/columns", kinds="learned", **use(6))
        post(table, "/goal", goal="model", label="ill")
        planning, goes_on, plan = threading.Event(), threading.Event(), studio.project.plan

        def plan_slowly(form):
            planning.set()
            assert goes_on.wait(60)
            plan(form)

        async def send_both():
            monkeypatch.setattr(studio.project, "plan", plan_slowly)
            version = str(studio.project.version)
            first = asyncio.create_task(
                table.send("POST", "/goal", data={"version": version, "goal": "tables", "by": "region"})
            )
            assert await asyncio.to_thread(planning.wait, 60)
            second = asyncio.create_task(table.send("POST", "/run", data={"version": version, "stop": "5"}))
            await asyncio.sleep(0.2)
            goes_on.set()
            return await first, await second

        planned, run = asyncio.run(send_both())
        assert planned.status_code == 303
        assert "out of date" in reason(run)
        assert not studio.project.runs

    def test_a_second_tab_makes_the_first_one_out_of_date(self, table, tmp_path):
        version = re.search(r'name="version" value="(\d+)"', table.get("/columns").text)[1]
        drop(table, write_clinic(tmp_path / "second.csv", rows=100))
        assert "out of date" in reason(post(table, "/columns", version=version, kinds="learned", **use(6)))

    def test_an_error_that_nobody_foresaw_is_one_sentence(self, table, studio, monkeypatch, tmp_path):
        monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "state"))
        monkeypatch.setattr(studio.project, "declare", lambda form: 1 / 0)
        answer = post(table, "/columns", kinds="learned")
        assert answer.status_code == 500
        assert "An unexpected ZeroDivisionError" in reason(answer)


def wait(run, seconds=120):
    end = time.monotonic() + seconds
    while run.is_running:
        assert time.monotonic() < end
        time.sleep(0.05)
    return run


class TestRun:
    def test_a_release_runs_and_is_downloaded(self, table, studio):
        """Reload, a second tab and a second run while it runs; then the page, the answers and the folder."""
        post(table, "/columns", kinds="learned", **use(6))
        post(table, "/goal", goal="tables", by=["region"], mean=["cost"])
        assert "nothing has been run" in reason(table.get("/run"))
        assert post(table, "/run", stop="7").status_code == 303
        assert "At work" in table.get("/run").text
        assert table.get("/progress").json()["state"] == "running"
        assert "commands are running" in reason(post(table, "/run", stop="7"))
        assert table.put("/table?name=b.csv", content=b"a\n1\n").status_code == 400
        assert wait(studio.project.run).state == "done", studio.project.run.text
        shown = table.get("/run").text
        assert "<td>mean cost</td>" in shown
        assert studio.project.spent == 2.0
        report = table.get("/report")
        assert "sandbox" in report.headers["content-security-policy"]
        assert "Numbers by group" in report.text
        with zipfile.ZipFile(io.BytesIO(post(table, "/folder.zip").content)) as archive:
            names = set(archive.namelist())
        files = ("script.py", "commands.sh", "notebook.ipynb", "report.html", "published/answers.csv")
        assert names >= {f"quorate-studio/{name}" for name in files}
        assert "epsilon = 2 of these records" in table.get("/plan").text
        assert post(table, "/run", stop="7").status_code == 303  # again, into a folder of its own
        assert studio.project.run.out == Path("quorate-studio-2")
        studio.project.run.stop()
        assert studio.project.run.state in ("interrupted", "done")

    @pytest.mark.long  # 10 s each
    @pytest.mark.parametrize("goal", ["pairs", "votes"])
    def test_every_goal_runs_to_its_page(self, table, studio, goal):
        """Pairs of columns, and votes, which are what remains for delta = 0: their folder holds a budget."""
        bounds = {
            "low-1": "0",
            "high-1": "120",
            "low-2": "0",
            "high-2": "9999",
            "low-4": "2024-01-01",
            "high-4": "2024-12-31",
        }
        kinds = ("number", "number", "category", "date", "category")
        declared = bounds | {f"kind-{number}": kind for number, kind in enumerate(kinds, start=1)}
        declared |= {"categories-3": "north\nsouth\neast", "categories-5": "no\nyes"}
        post(table, "/columns", kinds="declared", checked="yes", **use(6), **declared)
        votes = {"goal": "predictions", "label": "ill", "delta": "0", "queries": "30"}
        assert post(table, "/goal", **(votes if goal == "votes" else {"goal": "tables"})).status_code == 303
        assert post(table, "/run", stop="11").status_code == 303
        assert wait(studio.project.run).state == "done", studio.project.run.text
        shown = table.get("/run").text
        assert ("The model holds its budget" in shown) == (goal == "votes")
        assert table.get("/report").status_code == 200
        made = {path.name for path in studio.project.run.out.iterdir()}
        assert made >= {"schema.json", "script.py", "report.html", "model" if goal == "votes" else "published"}

    def test_a_run_that_is_refused_says_why(self, table, studio, tmp_path):
        post(table, "/columns", kinds="learned", **use(6))
        post(table, "/goal", goal="tables", by=["region"])
        (tmp_path / "clinic.csv").unlink()
        post(table, "/run", stop="5")
        assert wait(studio.project.run).state == "refused"
        shown = table.get("/run").text
        assert "clinic.csv" in shown
        assert "nothing is spent" in shown
        assert studio.project.spent == 0

    def test_an_interruption_says_what_is_spent(self, tmp_path):
        out = tmp_path / "out"
        out.mkdir()
        run = Run({"": ["demo", "--records", "400000"]}, folder=tmp_path, epsilon=1.0, out=out)
        end = time.monotonic() + 60
        while run.progress == "starting" and time.monotonic() < end:
            time.sleep(0.05)
        assert run.progress != "starting"  # a line of the command itself
        run.cancel()
        wait(run)
        assert run.state == "interrupted"
        assert run.messages[-1] == "No folder was written: nothing was released, and so nothing is spent."
        assert not run.may_have_spent
        (out / "model").mkdir()
        assert run.may_have_spent
        assert "epsilon = 1 may be spent" in run.messages[-1]


@contextlib.contextmanager
def started(*arguments, cwd, temporary):
    """Run the studio as a program; yield its process and its address."""
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "quorate", "studio", *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"},
    )
    try:
        yield process, re.search(r"http\S+", process.stdout.readline())[0]
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])  # Ctrl-C, and a terminal that is closed
def test_the_end_ends_the_run_and_removes_the_private_folder(tmp_path, number):
    write_clinic(tmp_path / "clinic.csv", rows=1000)
    temporary = tmp_path / "temporary"
    with started("clinic.csv", cwd=tmp_path, temporary=temporary) as (process, address):
        [folder] = temporary.iterdir()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        root, token = address.split("?")
        with httpx.Client(
            base_url=root, headers={"origin": root[: root.index("/", 7)]}, timeout=60, trust_env=False
        ) as client:
            assert client.get(f"/?{token}").status_code == 303
            post(client, "/columns", kinds="learned", **use(6))
            post(client, "/goal", goal="model", label="ill")
            post(client, "/run", stop="9")
            time.sleep(0.3)
        process.send_signal(number)
        text = process.communicate(timeout=60)[0]
        assert process.returncode == 0
        assert "nothing is spent" in text
        assert "Traceback" not in text
    assert list(temporary.iterdir()) == []
    assert list(tmp_path.glob("quorate-studio*")) == []


def test_a_port_that_is_taken_and_a_file_that_is_missing_are_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["studio", "missing.csv"]) == 1
    assert "there is no file missing.csv" in capsys.readouterr().err
    assert main(["studio", "--port", "70000"]) == 1
    with pytest.raises(InvalidInput):
        safe_name("visits")
