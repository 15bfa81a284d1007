"""The routes of the studio, and templates to pages. They load nothing, and their one script is their own."""

import asyncio
import base64
import csv
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from quorate.cli.app import write_crash
from quorate.cli.reading import TableFile
from quorate.cli.studio import project as projects
from quorate.cli.studio.downloads import to_notebook, to_zip
from quorate.cli.studio.guard import Guard
from quorate.cli.studio.project import Form, Project, Stop, safe_name
from quorate.core.checks import is_named_id
from quorate.core.errors import InvalidInput, QuorateError
from quorate.tables import read_table

MOST_BYTES = 512 * 2**20  # of a file that is dropped; a larger one is named on the command line
_MOST_FORM_BYTES = 16 * 2**20  # some thousands of columns
_SHOWN_ROWS = 200
_PUBLIC = "public"  # the folder of the public table, which never lies where a private one may
_STEPS = {"": "File", "columns": "Columns", "goal": "Goal", "plan": "Epsilon", "run": "Run"}
_REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; sandbox"


def _read(package: str, name: str) -> str:
    return resources.files(package).joinpath(name).read_text("utf-8")


def _stop_rules() -> str:
    """Return the rules that show what the chosen epsilon buys, without a script."""
    numbers = range(len(projects.STOPS))
    shown = ", ".join(f"form:has(#stop-{number}:checked) .stop-{number}" for number in numbers)
    return f".stop {{ display: none; }} {shown} {{ display: block; }}"


STYLE = _read("quorate.service.pages", "style.css") + _read("quorate.cli.studio", "studio.css") + _stop_rules()
SCRIPT = _read("quorate.cli.studio", "studio.js")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


POLICY = (
    f"default-src 'none'; style-src {_hash(STYLE)}; script-src {_hash(SCRIPT)}; img-src data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("quorate.cli.studio"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters |= {"figure": _figure, "kind_values": projects.kind_values}
    environment.tests["named_id"] = is_named_id
    return environment


def _figure(value: Any) -> str:
    """Return a number as people read it; anything else as its text."""
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def render(template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a template filled with values, each of them escaped."""
    fixed = {"style": Markup(STYLE), "script": Markup(SCRIPT), "steps": _STEPS}  # noqa: S704  our own files
    return HTMLResponse(_environment().get_template(template).render(**fixed, **values), status)


def refusal(text: str, status: int) -> HTMLResponse:
    """Return the page of a refusal."""
    return render("refused.html", status=status, page=None, text=text)


@dataclass(frozen=True)
class Studio:
    """The application behind its guard, and what it holds."""

    guard: Guard
    project: Project


def make_studio(folder: Path, *, port: int, source: TableFile | None = None) -> Studio:
    """Return the studio of a private folder, which begins with a table if there is one."""
    project = Project(folder)
    if source is not None:
        project.open(source)
    pages = Pages(project)
    routes = [
        Route("/", pages.begin),
        Route("/table", pages.take_table, methods=["PUT"]),
        Route("/public", pages.take_public, methods=["PUT"]),
        Route("/columns", pages.columns, methods=["GET", "POST"]),
        Route("/goal", pages.goal, methods=["GET", "POST"]),
        Route("/plan", pages.plan),
        Route("/script.py", pages.script, methods=["POST"]),
        Route("/notebook.ipynb", pages.notebook, methods=["POST"]),
        Route("/run", pages.run, methods=["GET", "POST"]),
        Route("/cancel", pages.cancel, methods=["POST"]),
        Route("/progress", pages.progress),
        Route("/report", pages.report),
        Route("/folder.zip", pages.folder, methods=["POST"]),
    ]
    for route in routes:
        route.app = _with_refusals(route.app)
    app = Starlette(routes=routes)
    return Studio(Guard(app, refuse=refusal, port=port, policy=POLICY), project)


def _with_refusals(app: Any) -> Any:
    """Return a route that answers every error with a sentence."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        try:
            await app(scope, receive, send)
            return
        except ClientDisconnect:
            return
        except QuorateError as error:
            text, status = f"{error}", 400
        except OSError as error:  # a full disk
            text, status = f"{error.strerror or error}", 507
        except Exception as error:  # as of a command: one sentence, and details in a file
            text, status = f"An unexpected {type(error).__name__} ended this. {write_crash()}", 500
        is_fetched = scope["method"] == "PUT" or scope["path"] == "/progress"
        response = JSONResponse({"error": text}, status) if is_fetched else refusal(text, status)
        await response(scope, receive, send)

    return answer


class Pages:
    """The answers to requests. One lock keeps two tabs from changing the project at once."""

    def __init__(self, project: Project) -> None:
        self._project, self._lock = project, asyncio.Lock()

    async def begin(self, request: Request) -> Response:
        """Show where to drop a file."""
        return self._show("begin.html", page="", most=MOST_BYTES // 2**20)

    async def take_table(self, request: Request) -> Response:
        """Take the private table as the body of the request."""
        async with self._lock:
            self._project.check_idle()
            query = request.query_params
            options: dict[str, Any] = {name: query[name] for name in ("encoding", "separator") if query.get(name)}
            skipped = projects.read_whole(query.get("skip_last") or "0")
            async with self._saved(request, Path(safe_name(query.get("name", "")))) as path:
                await run_in_threadpool(self._project.open, TableFile(table=path, skip_last=skipped, **options))
        return JSONResponse({"next": "columns"})

    async def take_public(self, request: Request) -> Response:
        """Take a public table of the same columns."""
        self._check_table()
        async with self._lock:
            self._project.check_idle()
            name = safe_name(request.query_params.get("name", ""))
            Path(_PUBLIC).mkdir(exist_ok=True)  # No private file has that name: each ends as a table does.
            async with self._saved(request, Path(_PUBLIC, name)) as path:
                await run_in_threadpool(read_table, path, role="public")
            self._project.take_public(path)
        return JSONResponse({"next": "columns"})

    @asynccontextmanager
    async def _saved(self, request: Request, path: Path) -> AsyncIterator[Path]:
        """Write the body into a file, piece by piece. If it turns out to be no table, the former file is put back."""
        former, size = path.with_name(f".{path.name}.former"), 0
        too_large = f"the file is larger than {MOST_BYTES:,} bytes; begin with it instead: quorate studio FILE"
        if int(request.headers.get("content-length", "0")) > MOST_BYTES:
            raise InvalidInput(too_large)
        if path.exists():
            path.replace(former)
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                async for piece in request.stream():
                    size += len(piece)
                    if size > MOST_BYTES:
                        raise InvalidInput(too_large)
                    file.write(piece)
            yield path
        except BaseException:
            path.unlink(missing_ok=True)
            if former.exists():
                former.replace(path)
            raise
        former.unlink(missing_ok=True)

    async def columns(self, request: Request) -> Response:
        """Show the columns, or take what their owner says of them."""
        project = self._check_table()
        if request.method == "GET":
            return self._show("columns.html", page="columns", columns=project.columns())
        await self._take_form(request, project.declare)
        return RedirectResponse("goal", 303)

    async def goal(self, request: Request) -> Response:
        """Show what can be made, or plan it."""
        project = self._check_table()
        if request.method == "GET":
            columns = project.columns()
            lists = {"by": projects.group_choices(columns), "numbers": projects.measure_choices(columns)}
            return self._show("goal.html", page="goal", columns=columns, measures=projects.MEASURES, **lists)
        await self._take_form(request, project.plan)
        return RedirectResponse("plan", 303)

    async def plan(self, request: Request) -> Response:
        """Show what each epsilon buys."""
        self._check_table()
        stops = self._project.stops
        if not stops:
            raise InvalidInput("nothing is planned yet: choose a goal first")
        usual = projects.STOPS.index(1.0)
        feasible = [number for number, stop in enumerate(stops) if stop.job is not None]
        chosen = usual if not feasible or usual in feasible else feasible[0]
        return self._show("plan.html", page="plan", stops=stops, chosen=chosen, key=_key_figures(stops))

    async def script(self, request: Request) -> Response:
        """Return the script of the plan at an epsilon."""
        return await self._code(request, "script.py", lambda script: script.encode())

    async def notebook(self, request: Request) -> Response:
        """Return the same as a notebook."""
        return await self._code(request, "notebook.ipynb", to_notebook)

    async def _code(self, request: Request, name: str, convert: Callable[[str], bytes]) -> Response:
        job = (await self._take_form(request, self._project.stop_at)).checked_job()
        return _attachment(await run_in_threadpool(lambda: convert(job.script())), name)

    async def run(self, request: Request) -> Response:
        """Run the commands of the plan, or show how far they are and what came out."""
        project = self._check_table()
        if request.method == "POST":
            await self._take_form(request, project.start)
            return RedirectResponse("run", 303)
        if project.run is None:
            raise InvalidInput("nothing has been run yet: plan first")
        return self._show("run.html", page="run", run=project.run, **await run_in_threadpool(_results, project.run.out))

    async def cancel(self, request: Request) -> Response:
        """Interrupt the commands, as Ctrl-C does."""
        if self._project.run is not None and self._project.run.is_running:
            self._project.run.cancel()
        return RedirectResponse("run", 303)

    async def progress(self, request: Request) -> Response:
        """Return how far the commands are."""
        run = self._project.run
        if run is None:
            raise InvalidInput("nothing has been run yet")
        return JSONResponse({"state": run.state, "progress": run.progress, "seconds": run.seconds})

    async def report(self, request: Request) -> Response:
        """Return the page that the commands wrote."""
        path = self._finished().out / "report.html"
        if not path.is_file():
            raise InvalidInput("the commands wrote no page")
        return FileResponse(path, media_type="text/html", headers={"content-security-policy": _REPORT_POLICY})

    async def folder(self, request: Request) -> Response:
        """Return all that the commands wrote, as one file."""
        out = self._finished().out
        return _attachment(await run_in_threadpool(to_zip, out), f"{out.name}.zip")

    def _finished(self) -> Any:
        run = self._project.run
        if run is None or run.is_running:
            raise InvalidInput("nothing has been made yet")
        return run

    def _check_table(self) -> Project:
        if self._project.source is None:
            raise InvalidInput("there is no table yet: drop a file first")
        return self._project

    async def _take_form(self, request: Request, take: Callable[[Form], Any]) -> Any:
        """Return what comes of a form. A form of an old page is refused, also if it waited while another changed it."""
        form = await _read_form(request)
        async with self._lock:
            if form.get("version") != [str(self._project.version)]:
                raise InvalidInput(
                    "this page is out of date: another tab has changed the table or the plan since; open it again"
                )
            return await run_in_threadpool(take, form)

    def _show(self, template: str, **values: Any) -> Response:
        return render(template, project=self._project, **values)


async def _read_form(request: Request) -> Form:
    """Return the fields of a form."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _MOST_FORM_BYTES:
            raise InvalidInput("the form is too large")
    form = parse_qs(body.decode("utf-8", errors="replace"), keep_blank_values=True)
    return {name: [text.replace("\r\n", "\n") for text in texts] for name, texts in form.items()}


def _attachment(content: bytes, name: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type="application/octet-stream", headers=headers)


def _key_figures(stops: list[Stop]) -> list[dict[str, Any]]:
    """Return the figure of each epsilon that the table and its bars compare: the smaller, the better."""
    figures: list[dict[str, Any]] = []
    for stop in stops:
        row = stop.rows[0] if stop.rows else {}
        value = row.get("expected loss", row.get("half_width"))
        is_share = "expected loss" in row
        text = "" if value is None else f"{value:.1%}" if is_share else f"± {_figure(value)} {row['unit']}"
        figures.append({"value": value, "text": text})
    top = max((figure["value"] for figure in figures if figure["value"] is not None), default=0) or 1
    return [figure | {"share": 100 * (figure["value"] or 0) / top} for figure in figures]


def _results(out: Path) -> Mapping[str, Any]:
    """Return what the page of a run shows of its folder."""
    summary, answers = out / "model" / "summary.txt", out / "published" / "answers.csv"
    rows: list[list[str]] = []
    if answers.is_file():
        with answers.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
    return {
        "summary": summary.read_text("utf-8").splitlines() if summary.is_file() else [],
        "header": rows[0] if rows else [],
        "rows": rows[1 : _SHOWN_ROWS + 1],
        "more": max(0, len(rows) - 1 - _SHOWN_ROWS),
        "has_report": (out / "report.html").is_file(),
        "is_private": (out / "model" / "manifest.json").is_file() and not summary.is_file(),
    }
