"""The studio in a real browser: keyboard, screen reader, narrow and dark, and nothing asked of anybody else."""

import json
import os
import re
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from test_studio import EVIL, write_clinic

from quorate.cli import main

_PICTURE = {"x": 90, "y": 0, "width": 1100, "height": 960}
VIEWS = ((1280, "light"), (500, "dark"))


@pytest.fixture
def address(tmp_path):
    """The address that `quorate studio` prints, in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "quorate", "studio"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1"},
    )
    yield re.search(r"http\S+", process.stdout.readline())[0]
    stop(process)


def stop(process):
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.fixture
def page(browser, address):
    """A page that has come with the token, and remembers what it complained about and whom it asked."""
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    context.set_default_timeout(60_000)
    page = context.new_page()
    page.complaints, page.asked = [], set()
    page.on("console", lambda said: page.complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("request", lambda sent: page.asked.add(re.match(r"\w+://[^/]*", sent.url)[0]))
    page.goto(address)
    yield page
    assert page.asked == {re.match(r"\w+://[^/]*", address)[0]}
    context.close()


def go_on(page):
    page.locator("button.go:visible").first.click()


def test_a_table_becomes_numbers_by_region_and_month_in_eight_clicks(page, tmp_path):
    """The second of three strangers' tasks: tables by region and month with intervals. A click is a line."""
    page.set_input_files("#file", write_clinic(tmp_path / "clinic.csv"))
    page.wait_for_url("**/columns")
    go_on(page)
    page.check("#goal-tables")
    page.check("[name=by][value=region]")
    page.check("[name=by][value='visited:month']")
    page.check("[name=mean][value=cost]")
    go_on(page)
    page.wait_for_url("**/plan")
    go_on(page)
    page.wait_for_selector("h1:text('Done')")
    rows = [row.split("\t") for row in page.inner_text("tbody").splitlines()]
    counts = {(row[0], row[1]): [float(text) for text in row[3:6]] for row in rows if row[2] == "records"}
    assert {region for region, _ in counts} >= {"north", "south", "east"}
    assert len(counts) == 3 * 6 + 1  # and one row for all groups that are not clearly there
    assert all(low <= answer <= high for answer, low, high in counts.values())
    assert page.complaints == []
    page.click("text=Look at the page")
    assert "Numbers by group" in page.inner_text("h1")


def test_the_slider_shows_what_each_epsilon_buys_by_keyboard(page, tmp_path):
    page.set_input_files("#file", write_clinic(tmp_path / "clinic.csv"))
    page.wait_for_url("**/columns")
    go_on(page)
    page.select_option("[name=label]", "ill")
    go_on(page)
    page.focus("#slider")
    before = page.inner_text(".stop:visible")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#epsilon") == "1.5"
    assert page.get_attribute("#slider", "aria-valuetext") == "epsilon 1.5"
    after = page.inner_text(".stop:visible")
    assert after.startswith("At epsilon = 1.5")
    if "QUORATE_PICTURES" in os.environ:  # that of docs/howto/studio.md is drawn anew: QUORATE_PICTURES=docs/pictures
        page.screenshot(path=Path(os.environ["QUORATE_PICTURES"]) / "studio.png", clip=_PICTURE)
    losses = [float(re.search(r"linear\s+([\d.]+)%", text)[1]) for text in (before, after)]
    assert losses[1] < losses[0]
    page.focus("#stop-0")
    page.keyboard.press("ArrowDown")
    assert page.inner_text("#epsilon") == "0.2"  # the rows move the slider, too
    with page.expect_download() as download:
        page.click("text=Download the notebook")
    assert download.value.suggested_filename == "notebook.ipynb"


def test_columns_of_a_wide_table_are_found_and_ticked_together(page, tmp_path):
    wide = {f"lab {number}": "1" for number in range(40)}
    page.set_input_files("#file", write_clinic(tmp_path / "wide.csv", rows=60, **wide))
    page.wait_for_url("**/columns")
    page.fill("[data-filter]", "lab 1")
    assert page.locator("tr[data-name]:visible").count() == 11  # 1 and 10 to 19
    page.click("text=Use none shown")
    page.fill("[data-filter]", "")
    assert page.locator("[name^=use-]:checked").count() == 40 + 5 - 11


def test_it_works_without_its_script_but_for_the_file(browser, tmp_path):
    """The table is named on the command line, and everything else is forms."""
    write_clinic(tmp_path / "clinic.csv")
    command = [sys.executable, "-m", "quorate", "studio", str(tmp_path / "clinic.csv")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        page = browser.new_context(java_script_enabled=False).new_page()
        page.goto(re.search(r"http\S+", process.stdout.readline())[0])
        page.click("text=Go on with its columns")
        go_on(page)
        page.select_option("[name=label]", "ill")
        go_on(page)
        page.check("#stop-8")
        assert page.inner_text(".stop:visible").startswith("At epsilon = 3")
        go_on(page)
        page.click("text=Stop it")
        for _ in range(100):
            page.goto(page.url)
            if "Interrupted" in page.inner_text("h1"):
                break
        assert "nothing is spent" in page.inner_text("[role=alert]")
        page.context.close()
    finally:
        stop(process)


def find_violations(page, axe):
    """Return what axe-core finds on a page, at each view, and whether it scrolls sideways."""
    found = []
    for width, colours in VIEWS:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=colours)
        if page.evaluate("document.documentElement.scrollWidth") > width:
            found.append((width, "scrolls sideways"))
        page.evaluate(axe)
        found += [(rule["id"], rule["nodes"][0]["html"][:200]) for rule in page.evaluate("axe.run()")["violations"]]
    return found


def test_pages_are_sound_for_keyboard_and_screen_reader(browser, axe, address, tmp_path):
    page = browser.new_context(bypass_csp=True).new_page()  # so that axe-core can be run in it
    page.goto(address)
    assert find_violations(page, axe) == []
    page.set_input_files("#file", {"name": "noise.csv", "mimeType": "text/csv", "buffer": b"\x00\x01"})
    page.wait_for_selector(".upload.bad")
    assert find_violations(page, axe) == []
    page.set_input_files("#file", write_clinic(tmp_path / "clinic.csv", **{EVIL: "1", "x" * 90: "1"}))
    page.wait_for_url("**/columns")
    assert find_violations(page, axe) == []
    page.check("#kinds-declared")
    assert find_violations(page, axe) == []
    go_on(page)
    assert "This was refused" in page.inner_text("h1")
    assert find_violations(page, axe) == []
    page.goto(page.url)
    go_on(page)
    for goal in ("tables", "model"):
        page.goto(page.url.replace("/plan", "/goal"))
        page.check(f"#goal-{goal}")
        page.select_option("[name=label]", "ill") if goal == "model" else page.check("[name=by][value=region]")
        assert find_violations(page, axe) == []
        go_on(page)
        page.wait_for_url("**/plan")
        assert find_violations(page, axe) == []
    go_on(page)
    page.wait_for_selector("progress")
    assert find_violations(page, axe) == []
    page.click("text=Stop it")
    page.wait_for_selector("h1:text('Interrupted')")
    assert find_violations(page, axe) == []
    page.context.close()


@pytest.mark.long  # 20 s: it fits the model twice
def test_a_table_becomes_a_model_in_five_clicks(browser, axe, address, tmp_path, monkeypatch):
    """The first of three strangers' tasks, in the browser; then all that the folder holds."""
    page = browser.new_context(bypass_csp=True).new_page()
    page.goto(address)
    table = write_clinic(tmp_path / "clinic.csv", rows=6000)
    page.set_input_files("#file", table)
    page.wait_for_url("**/columns")
    go_on(page)
    page.select_option("[name=label]", "ill")
    go_on(page)
    page.wait_for_url("**/plan")
    go_on(page)
    page.wait_for_selector("h1:text('Done')", timeout=120_000)
    assert "Its labels are better than a constant answer." in page.inner_text("main")
    assert find_violations(page, axe) == []
    with page.expect_download() as download:
        page.click("text=Download the folder")
    with zipfile.ZipFile(download.value.path()) as archive:
        archive.extractall(tmp_path)
    monkeypatch.chdir(tmp_path)
    made = Path("quorate-studio")
    assert main(["verify", str(made / "model")]) == 0
    names, cells = {}, json.loads((made / "notebook.ipynb").read_text())["cells"]
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert (made / "published" / "GUARANTEE.md").is_file()  # beside the model of the commands
    assert set(names["fitted"].columns) == {"age", "cost", "region", "visited"}
    page.context.close()
