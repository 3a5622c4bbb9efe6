"""A large report in a real browser, at three widths, in the dark and on paper: nothing is lost, nothing overlaps."""

import base64
import dataclasses
import shutil

import numpy as np
import pytest

from fedloom import report
from fedloom.experiments.study import Study
from fedloom.report import forest
from tests.test_report import result
from tests.test_report_browser import CURVES, browser, of, until  # noqa: F401

pytest.importorskip("selenium")
pytestmark = pytest.mark.skipif(
    not (shutil.which("chromium") and shutil.which("chromedriver")),
    reason="chromium and chromedriver are not installed",
)
WIDTHS = [400, 800, 1400]
PAGE = 703  # pixels of A4 between margins of 12 mm
NAMES = [f"method-{i:02}" for i in range(10)] + ["one with a very long name, as users like them", "stretches"]


def runs():
    """Twelve methods within a few points, each with three seeds; the last is far below the others."""
    rng = np.random.default_rng(0)
    for i, name in enumerate(NAMES):
        for seed in range(3):
            rise = 0.9 * (1 - 0.7 ** np.arange(41)) - 0.001 * i + 0.004 * rng.standard_normal(41)
            made = result(name, list(rise if name != "stretches" else rise / 10), seed, rounds=40)
            names = {"names": ["Cleveland", "Columbus", "Cincinnati"]}
            yield dataclasses.replace(made, about=made.about | names)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    study = Study("A large study", list(runs()), target=("test accuracy", 0.88))
    rows = [forest.Difference(n, -0.001 * i, -0.1, 0.1, -0.2, 0.2, i < 4) for i, n in enumerate(NAMES)]
    drawn = forest.forest_plotly(rows, NAMES[0], "test accuracy")
    lrs = [0.01, 0.03, 0.1, 0.3]
    map_ = report.heat_map_plotly(lrs, lrs, np.arange(16).reshape(4, 4), "solver.lr", "algorithm.lr", "a sweep")
    heads = "".join(f"<th>a heading of column {i}</th>" for i in range(12))
    cells = "".join(f"<tr>{''.join('<td>0.1234 ± 0.0056</td>' for _ in range(12))}</tr>" for _ in range(3))
    table = f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{cells}</tbody></table></div>'
    extra = [("Differences", "", drawn), ("Sweep", f"<details><summary>All</summary>{table}</details>", map_)]
    path = tmp_path_factory.mktemp("large") / "report.html"
    path.write_text(report.page.page(study, extra=extra), encoding="utf-8")
    return path


@pytest.fixture
def at(browser, large):  # noqa: F811
    """Open the report in a window of that width."""

    def opened(width, media="screen", scheme="light"):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "screen", "features": features})
        browser.get(large.as_uri())
        until(browser, f"{CURVES}.data.length > 0", True)
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
        until(browser, "onPaper", media == "print")
        return browser

    yield opened
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    assert browser.get_log("browser") == []


# Elements that reach beyond the page. What a table or a listing can scroll to is not lost; curves are clipped.
BEYOND = """[...document.querySelectorAll("body *")].filter((e) => {
  const box = e.getBoundingClientRect();
  if (!box.width || !box.height || e.closest(`#js-plotly-tester, ${SCROLLING}`)) return false;
  if (e.closest("svg") && !["text", "svg"].includes(e.tagName)) return false;
  return box.right > innerWidth + 1 || box.left < -1;
}).map((e) => e.tagName + "." + e.className.baseVal + " " + e.textContent.slice(0, 40))"""

# Pairs of siblings in the layout that overlap.
OVERLAPS = """((boxes) => boxes.flatMap((a, i) => boxes.slice(i + 1).filter((b) => {
  const [p, q] = [a.getBoundingClientRect(), b.getBoundingClientRect()];
  if (!p.width || !q.width) return false;
  return p.left < q.right - 1 && q.left < p.right - 1 && p.top < q.bottom - 1 && q.top < p.bottom - 1;
}).map((b) => a.textContent + " | " + b.textContent)))([...document.querySelectorAll(WHAT)])"""
LABELS = f"{CURVES}.layout.annotations.filter((a) => a.name === 'label')"


def overlaps(what):
    return OVERLAPS.replace("WHAT", f"'{what}'")


def nothing_overlaps(driver):
    for what in (".card", ".controls label", ".names button", ".curves .annotation-text", "#extra-0 .ytick text"):
        until(driver, overlaps(what), [])
    sections = "header, main > section > *:not(script), footer"
    until(driver, overlaps(sections), [])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_the_window_or_overlaps(at, width, scheme):
    driver = at(width, scheme=scheme)
    driver.execute_script("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    until(driver, BEYOND.replace("SCROLLING", "'.scroll, pre'"), [])
    until(driver, "document.documentElement.scrollWidth <= innerWidth", True)
    until(driver, f"{LABELS}.length", 5)
    nothing_overlaps(driver)
    driver.find_element("css selector", "[data-first='12']").click()  # all in colour, all labelled
    until(driver, f"{LABELS}.length", 12)
    nothing_overlaps(driver)


@pytest.mark.parametrize("width", WIDTHS)
def test_every_column_can_be_seen_beside_the_names(at, width):
    driver = at(width)
    driver.execute_script("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    hidden = """[...document.querySelectorAll(".scroll")].flatMap((box) => {
      const [first, ...others] = box.querySelectorAll("th");
      return others.filter((head) => {
        box.scrollLeft = 0;
        box.scrollLeft = head.getBoundingClientRect().left - first.getBoundingClientRect().right;
        const [a, b, c] = [first, head, box].map((e) => e.getBoundingClientRect());
        return b.left < a.right - 1 || b.right > c.right + 1 || c.right > innerWidth || a.left < c.left - 1;
      }).map((head) => head.textContent);
    })"""
    until(driver, hidden, [])
    # The hint is there exactly where the table is wider than its place.
    agree = """[...document.querySelectorAll(".scroll")].every((box) => {
      const wider = box.scrollWidth > box.clientWidth + 1;
      const said = box.previousElementSibling.matches(".hint:not([hidden])");
      return said === wider && (box.tabIndex === 0) === wider;
    })"""
    until(driver, agree, True)
    if width == 400:
        until(driver, "document.querySelectorAll('.hint:not([hidden])').length", 3)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_paper_all_columns_are_within_the_page(at, scheme):
    driver = at(PAGE, "print", scheme)
    until(driver, BEYOND.replace("SCROLLING", "'.none'"), [])
    until(driver, "document.documentElement.scrollWidth <= innerWidth", True)
    nothing_overlaps(driver)
    until(driver, "[...document.querySelectorAll('details')].every((one) => one.open)", True)
    shown = "[...document.querySelectorAll('.controls, .names, .copy, .hint')].filter((e) => e.offsetParent).length"
    until(driver, shown, 0)
    until(driver, "getComputedStyle(document.body).color === getComputedStyle(document.body).backgroundColor", False)
    until(driver, "colour('background')", "#ffffff")  # the dark is for screens
    clipped = "[...document.querySelectorAll('th, td, pre')].filter((e) => e.scrollWidth > e.clientWidth + 1).length"
    until(driver, clipped, 0)


def test_printing_opens_everything_and_then_puts_it_back(at):
    driver = at(1400)
    closed = "document.querySelectorAll('details:not([open])').length"
    before = driver.execute_script("return " + closed)
    assert before > 0
    script = """addEventListener("beforeprint", () => {
      const widths = [...document.querySelectorAll(".main-svg")].map((e) => e.clientWidth);
      window.printed = [document.querySelectorAll("details:not([open])").length, Math.max(...widths)];
    });"""
    driver.execute_script(script)
    made = driver.execute_cdp_cmd(
        "Page.printToPDF", {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": True}
    )
    assert base64.b64decode(made["data"]).startswith(b"%PDF")
    closed_then, widest = driver.execute_script("return window.printed")
    assert closed_then == 0
    assert widest <= PAGE
    until(driver, closed, before)
    until(driver, f"{CURVES}.querySelector('.main-svg').clientWidth > 1000", True)


def test_one_method_does_not_stretch_the_axis_and_is_named(at):
    driver = at(1400)
    low, high = driver.execute_script(f"return {CURVES}.layout.yaxis.range")
    assert 0.7 < low < 0.86
    assert 0.9 < high < 0.95
    until(driver, "document.querySelector('.outside').textContent.includes('leaves out stretches;')", True)
    driver.find_element("css selector", "[name=hide]").click()  # it is grey, and now it is not drawn
    until(driver, "document.querySelector('.outside').hidden", True)


def test_the_first_five_are_coloured_and_the_others_when_pointed_at(at):
    driver = at(1400)
    grey = driver.execute_script("return colour('faint')")
    lines = f"{CURVES}.data.filter((t) => t.meta === 'line' && t.line.color !== colour('faint'))"
    coloured = lines + ".map((t) => t.legendgroup).sort()"
    order = driver.execute_script("return data.tasks[0].series.map((one) => one.name)")
    until(driver, coloured, sorted(order[:5]))
    until(driver, f"{CURVES}.data.filter((t) => t.meta === 'band').length", 5)  # three seeds: intervals
    driver.execute_script("document.querySelectorAll('[data-name]')[7].focus()")
    until(driver, coloured, sorted([*order[:5], order[7]]))
    driver.execute_script("document.querySelectorAll('[data-name]')[7].blur()")
    until(driver, f"{of('line', order[7])}.line.color", grey)
    driver.find_element("css selector", "[data-first='12']").click()
    until(driver, coloured, sorted(order))
    driver.find_element("css selector", "[data-first='5']").click()
    until(driver, coloured, sorted(order[:5]))


def test_labels_follow_a_zoom(at):
    driver = at(1400)
    driver.execute_script(f"Plotly.relayout({CURVES}, {{'xaxis.range': [0, 20.5]}})")
    until(driver, f"{LABELS}.map((a) => a.x)", [20] * 5)
    until(driver, overlaps(".curves .annotation-text"), [])


def test_clients_have_their_names(at):
    driver = at(1400)
    ticks = "[...document.querySelectorAll('.split .xtick text')].map((t) => t.textContent)"
    until(driver, ticks, ["Cleveland", "Columbus", "Cincinnati"])
