"""The page in a real browser: drawn, without a request, used by mouse and keyboard."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from axe_core_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

import fsf_reports
import fsframework as fsf
from fsf_reports import HtmlPage, Report
from fsf_reports.interfaces import ReportedData, ReportPage, ReportPart
from fsf_reports.testing import toy_figure, toy_runs
from fsf_reports.values import (
    Entry,
    FigureDeclaration,
    Gallery,
    ImageGroup,
    Listing,
    Quantity,
    TableDeclaration,
    TaskBrowser,
    Text,
)

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
NAMES = ("<script>alert(1)</script>", "\"quoted\" & 'q' $x_1$ {a} #5%", "שלום 🐕", "long " * 60)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture(scope="module")
def report(
    methods: dict[str, fsf.Run], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Report]:
    """A report on two real runs of 24 tasks of three ways, one shot and three queries."""
    folder = tmp_path_factory.mktemp("report")
    runs = [methods["ncc"], methods["logistic"]]
    made = fsf_reports.report(runs, progress=False, cache_dir=folder / "cache")
    return made.save(folder / "report.html"), made


class Opened:
    """A page that was opened, and what it did."""

    def __init__(self, browser: Browser, path: Path, **context: Any) -> None:
        self.context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 900}, **context}
        )
        self.context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.page = self.context.new_page()
        self.told: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.told.append(message.text))
        self.page.on("pageerror", lambda error: self.told.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_function("document.documentElement.dataset.complete === 'true'")

    @property
    def elsewhere(self) -> list[str]:
        """Requests but that for the page itself."""
        inside = ("data:", "blob:")
        return [url for url in self.requests[1:] if not url.startswith(inside)]


@pytest.fixture(scope="module")
def opened(browser: Browser, report: tuple[Path, Report]) -> Iterator[Opened]:
    made = Opened(browser, report[0])
    yield made
    made.context.close()


@pytest.fixture
def page(opened: Opened) -> Page:
    opened.page.evaluate("window.scrollTo(0, 0)")
    return opened.page


def _copied(page: Page) -> str:
    found: str = page.evaluate("navigator.clipboard.readText()")
    return found


def _column(page: Page, table: str, column: int) -> list[str]:
    script = f"""() => [...document.querySelectorAll('#{table} tbody tr:not([hidden])')]
        .map((row) => row.cells[{column}].dataset.text ?? row.cells[{column}].textContent)"""
    found: list[str] = page.evaluate(script)
    return found


def _table(page: Page, name: str) -> str:
    """Return the identity of a table."""
    found = page.locator(f"table[data-name='{name}']").get_attribute("id")
    assert found is not None
    return found


def _drawn_pixels(page: Page, selector: str) -> list[int]:
    """Return how many colours each figure shows besides its ground."""
    from io import BytesIO

    from PIL import Image

    counts = []
    for box in page.locator(selector).all():
        pixels = np.asarray(Image.open(BytesIO(box.screenshot())).convert("RGB")).reshape(-1, 3)
        counts.append(len(np.unique(pixels // 32, axis=0)))
    return counts


@pytest.mark.slow
def test_the_leaderboard_fits_a_small_laptop(browser: Browser, report: tuple[Path, Report]) -> None:
    made = Opened(browser, report[0], viewport={"width": 1200, "height": 900})
    hidden = "(box) => box.scrollWidth - box.clientWidth"
    assert made.page.locator(".scroll[aria-label='Leaderboard']").evaluate(hidden) <= 0
    made.context.close()


def test_nothing_is_requested_or_complained_about_and_everything_is_drawn(
    opened: Opened, report: tuple[Path, Report]
) -> None:
    assert report[1].problems == {}
    assert opened.told == []
    assert opened.elsewhere == []
    titles = opened.page.locator("main h2").all_text_contents()
    assert titles == [part.title for part in report[1].page.parts]
    figures = opened.page.locator("[data-figure]").count()
    assert figures >= 2
    assert opened.page.locator("[data-figure][data-drawn=true]").count() == figures
    assert min(_drawn_pixels(opened.page, "[data-figure] .canvas")) > 4


def test_every_number_of_every_table_and_figure_is_the_declared_one(
    page: Page, report: tuple[Path, Report]
) -> None:
    blocks = [block for part in report[1].page.parts for block in part.blocks]
    tables = [block for block in blocks if isinstance(block, TableDeclaration)]
    assert len(tables) >= 5
    for table in tables:
        cells = page.evaluate(
            "(name) => [...document.querySelectorAll(`table[data-name='${name}'] tbody tr`)].map("
            "(row) => [[...row.querySelectorAll('th')].map((th) => th.textContent),"
            " [...row.querySelectorAll('td')].map((td) => td.dataset.value)])",
            table.name,
        )
        shown = {tuple(names): values for names, values in cells}
        assert set(shown) == {entry.row for entry in table.entries}
        for entry in table.entries:
            value = shown[entry.row][table.columns.index(entry.column)]
            known = entry.measured is not None and not np.isnan(entry.measured.value)
            assert value == (repr(entry.measured.value) if known else "")  # type: ignore[union-attr]
    figures = [block for block in blocks if isinstance(block, FigureDeclaration)]
    drawn = page.evaluate("JSON.parse(document.getElementById('report').textContent).figures")
    assert len(drawn) == len(figures) >= 2
    for figure, specs in zip(figures, drawn, strict=True):
        for spec in (specs["narrow"], specs["wide"]):
            numbers = json.dumps(spec)
            for point in figure.points:
                assert point.y is not None
                assert f'"y": {json.dumps(point.y.value)}' in numbers


def test_tables_sort_by_mouse_and_keyboard(page: Page) -> None:
    table = _table(page, "Words")
    values = [int(text.replace(",", "")) for text in _column(page, table, 1)]
    head = page.locator(f"#{table} th").nth(1)
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert [int(t.replace(",", "")) for t in _column(page, table, 1)] == sorted(values)[::-1]
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert [int(t.replace(",", "")) for t in _column(page, table, 1)] == sorted(values)
    words = page.locator(f"#{table} th").nth(0)
    words.locator("button").focus()
    page.keyboard.press("Space")
    assert words.get_attribute("aria-sort") == "ascending"
    assert head.get_attribute("aria-sort") == "none"
    assert _column(page, table, 0) == sorted(_column(page, table, 0))


def test_tables_filter_and_copy_what_is_shown(page: Page) -> None:
    table = _table(page, "Words")
    box = page.locator(f".table:has(#{table})")
    word = _column(page, table, 0)[3]
    box.get_by_label("Filter rows").fill(word)
    rows = _column(page, table, 0)
    assert word in rows
    assert len(rows) < 10
    box.get_by_role("button", name="as CSV").click()
    page.wait_for_function("document.getElementById('said').textContent.includes('copied')")
    lines = _copied(page).splitlines()
    assert lines[0].startswith("word,images,")
    assert [line.split(",")[0] for line in lines[1:]] == rows
    box.get_by_role("button", name="as Markdown").focus()
    page.keyboard.press("Enter")
    page.wait_for_timeout(60)
    assert _copied(page).startswith("| word | images |")
    box.get_by_role("button", name="as LaTeX").click()
    page.wait_for_timeout(60)
    tex = _copied(page)
    assert tex.startswith("\\begin{tabular}{lr")
    assert "\\toprule" in tex
    assert tex.endswith("\\end{tabular}")
    box.get_by_label("Filter rows").fill("")
    assert len(_column(page, table, 0)) > len(rows)


def test_tables_of_several_sets_of_tasks_are_filtered_by_their_names(
    browser: Browser, report: tuple[Path, Report], tmp_path: Path
) -> None:
    part = next(one for one in report[1].page.parts if one.name == "leaderboard")
    board = next(one for one in part.blocks if isinstance(one, TableDeclaration))
    names = [f"Leaderboard: birds, 5-way {shot}-shot" for shot in (1, 5)]
    blocks = tuple(dataclasses.replace(board, name=name) for name in names)
    shown = dataclasses.replace(report[1].page, parts=(dataclasses.replace(part, blocks=blocks),))
    page = Opened(
        browser, dataclasses.replace(report[1], page=shown).save(tmp_path / "two.html")
    ).page
    page.get_by_label("Filter tables").fill("birds 5-shot")
    tables = page.locator("section > .table")
    assert [tables.nth(i).is_visible() for i in range(2)] == [False, True]


def test_tasks_begin_with_the_worst(page: Page, report: tuple[Path, Report]) -> None:
    run = report[1].page.runs[0]
    assert run.outcomes is not None
    biased, random = run.outcomes["biased"], run.outcomes["random"]
    worst = int(np.argmin(biased.task_accuracy))
    below = 100 * (random.task_accuracy.mean() - biased.task_accuracy[worst])
    heading = page.locator("article.task h3")
    accuracy = f"{100 * biased.task_accuracy[worst]:.1f} %"
    assert heading.text_content() == f"Task {worst} of the biased arm: {accuracy} right"
    told = page.locator("article.task .under").text_content() or ""
    assert f"{below:.1f} points below the mean of the random arm" in told
    wrong = int((biased.predictions[worst] != np.arange(3)[:, None]).sum())
    assert page.locator("article.task .pic.wrong").count() == wrong
    assert page.locator("article.task .pic").count() == 3 * (1 + 3)
    loaded = "[...document.querySelectorAll('article.task img')].every((i) => i.naturalWidth > 0)"
    page.locator("article.task").scroll_into_view_if_needed()
    page.wait_for_function(loaded)
    names = [run.data.pool.class_names[label] for label in run.arms["biased"].classes[worst]]  # type: ignore[union-attr,index]
    assert page.locator("article.task .way h4").all_text_contents() == names
    tasks = run.arms["biased"]  # type: ignore[index]
    words = [tasks.words[word] for word in tasks.attribute[worst]]
    assert page.locator("article.task .way .chip").all_text_contents() == words


def test_the_browser_of_tasks_is_used_by_keyboard_and_sorts_and_filters(page: Page) -> None:
    rows = page.locator(".browser .pick")
    first, second = rows.nth(0).text_content(), rows.nth(1).text_content()
    rows.nth(0).focus()
    page.keyboard.press("ArrowDown")
    assert (page.locator("article.task h3").text_content() or "").startswith(f"Task {second} ")
    assert rows.nth(1).evaluate("(b) => b === document.activeElement")
    assert rows.nth(1).get_attribute("aria-pressed") == "true"
    page.keyboard.press("ArrowUp")
    assert (page.locator("article.task h3").text_content() or "").startswith(f"Task {first} ")
    page.get_by_label("Order", exact=True).select_option("number")
    assert rows.nth(0).text_content() == "0"
    page.get_by_role("button", name="Next").click()
    assert rows.nth(0).text_content() == "10"
    page.get_by_label("Arm", exact=True).select_option("random")
    assert page.locator(".browser tbody td").nth(0).text_content() == "random"
    page.get_by_label("Arm", exact=True).select_option("biased")
    page.get_by_label("Run", exact=True).select_option(label="logistic")
    page.wait_for_function(
        "document.querySelector('article.task .under').textContent.startsWith('logistic')"
    )
    page.get_by_label("Class or word").fill("no such word")
    page.get_by_text("No task matches.").wait_for()
    page.get_by_label("Class or word").fill("")
    page.get_by_role("button", name="Words of images").click()
    page.locator("article.task .words").first.wait_for()
    assert page.locator("article.task .words").count() == 3 * (1 + 3)
    assert page.locator("article.task .words mark").count() >= 3


def test_figures_show_a_tooltip_and_hide_series(page: Page) -> None:
    figure = page.locator("[data-figure='0']")
    figure.scroll_into_view_if_needed()
    marks = figure.locator("svg path[aria-roledescription=point], svg path[aria-label]")
    before = figure.locator("svg path").count()
    marks.last.hover(force=True)
    page.locator("#vg-tooltip-element.visible").wait_for()
    chip = figure.get_by_role("button", name="ncc")
    chip.focus()
    page.keyboard.press("Enter")
    page.wait_for_function(
        f"document.querySelectorAll(\"[data-figure='0'] svg path\").length < {before}"
    )
    assert chip.get_attribute("aria-pressed") == "false"
    chip.click()


def test_a_phone_in_the_dark_and_on_paper(browser: Browser, report: tuple[Path, Report]) -> None:
    dark = Opened(browser, report[0], color_scheme="dark", viewport={"width": 390, "height": 800})
    page = dark.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.id === 'content'")
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(19, 21, 24)"
    # Nothing but tables, which scroll by themselves, is wider than a phone.
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert _serious(page, runOnly=["color-contrast"]) == []
    page.get_by_role("button", name="Switch to the light theme").click()
    assert page.evaluate(ground) == "rgb(253, 253, 252)"
    page.emulate_media(media="print")
    assert not page.locator(".tools").first.is_visible()
    assert page.locator("main h2").first.is_visible()
    assert dark.told == []
    dark.context.close()


def _serious(page: Page, **options: Any) -> list[str]:
    found = Axe().run(page, options=options)["violations"]
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:120]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


def test_axe_finds_nothing_serious(page: Page) -> None:
    assert _serious(page) == []


def test_any_names_are_shown_as_text(browser: Browser, tmp_path: Path) -> None:
    runs = toy_runs(4, names=NAMES)
    entries = tuple(Entry((name,), NAMES[1], Quantity.around(5.0, 1.0)) for name in NAMES)
    blocks = (
        Text((NAMES[0],), "caution", NAMES[1]),
        TableDeclaration(NAMES[0], NAMES[3], (NAMES[2],), entries, (NAMES[1],)),
        toy_figure("points", names=NAMES),
        Gallery(NAMES[2], 0, (ImageGroup(NAMES[0], (0, 1)),)),
        TaskBrowser((0, 1, 2, 3)),
        Listing(NAMES[3], "\n".join(NAMES)),
    )
    parts = (ReportPart("one", NAMES[0], blocks), ReportPart("two", NAMES[1], problem=NAMES[0]))
    path = tmp_path / "hostile.html"
    path.write_text(HtmlPage().write(ReportPage(NAMES[0], parts, runs)), encoding="utf-8")
    opened = Opened(browser, path)
    page = opened.page
    assert opened.told == []
    assert opened.elsewhere == []
    assert page.title() == NAMES[0]
    assert page.locator("main script, nav script").count() == 0
    for name in NAMES:
        assert page.get_by_text(name.strip()).count() > 0
    page.locator(".table").first.get_by_role("button", name="as LaTeX").click()
    page.wait_for_timeout(60)
    assert "\\$x\\_1\\$ \\{a\\} \\#5\\%" in _copied(page)
    # Every second image is no longer there: its key stands in its place.
    assert page.locator(".gallery img").count() == 1
    keys = runs[0].data.pool.keys  # type: ignore[union-attr]
    assert page.locator(".gallery .key").text_content() == keys[1]
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    opened.context.close()


def test_data_that_are_gone_leave_numbers(browser: Browser, tmp_path: Path) -> None:
    lost = ReportedData(name="moved", split="test", key_digest="", reason="it was moved")
    run = dataclasses.replace(toy_runs(1)[0], data=lost)
    page_ = ReportPage("Lost", (ReportPart("tasks", "Tasks", (TaskBrowser((0,)),)),), toy_runs(0))
    page_ = dataclasses.replace(page_, runs=type(page_.runs)([run]))
    path = tmp_path / "lost.html"
    path.write_text(HtmlPage().write(page_), encoding="utf-8")
    opened = Opened(browser, path)
    assert opened.told == []
    assert opened.page.locator("article.task img").count() == 0
    assert (opened.page.locator("article.task .key").first.text_content() or "").startswith(
        "image "
    )
    assert (opened.page.locator(".way h4").first.text_content() or "").startswith("class ")
    opened.context.close()


@pytest.mark.slow
def test_a_notebook_shows_the_page(browser: Browser, report: tuple[Path, Report]) -> None:
    page = browser.new_page()
    page.set_content(f"<body>{report[1]._repr_html_()}</body>")
    frame = page.frame_locator("iframe")
    frame.locator("html[data-ready=true]").wait_for(state="attached")
    assert frame.locator("main h2").first.text_content() == "What was found"
    page.close()
