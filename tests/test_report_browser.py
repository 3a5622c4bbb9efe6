"""A report in a real browser: it draws, its controls work, it logs no error and asks the network for nothing."""

import math
import shutil
import time

import pytest

from fedloom import report
from fedloom.experiments.study import Study
from tests.test_report import result

webdriver = pytest.importorskip("selenium.webdriver")
BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (BROWSER and DRIVER), reason="chromium and chromedriver are not installed")

HOSTILE = "<b><img src=x onerror=alert(1)></b>"
VALUES = [[0.5, 0.6, math.nan], [0.7, 0.8, 0.9]]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    study = Study(
        "Methods & more",
        [
            result("steady", [0.1, 0.5, 0.6, 0.7, 0.8], 0),
            result("steady", [0.1, 0.2, 0.4, 0.6, 0.7], 1),
            result(HOSTILE, [0.1, 0.3, 0.4, 0.4, 0.5], extra=2),
            result("lost", [0.1, 0.2], diverged=2),
        ],
        target=("test accuracy", 0.5),
    )
    sweep = report.heat_map_plotly([0.1, 1, 10], [1, 2], VALUES, "client lr", "server lr", "sweep")
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(report.page.page(study, extra=[("Sweep", "<p>extra</p>", sweep)]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1300,1000"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def opened(browser, path):
    """The report, just opened; at the end there must be no message in the console and no request."""
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.get(path.as_uri())
    yield browser
    assert browser.get_log("browser") == []
    assert browser.execute_script("return performance.getEntriesByType('resource').map((r) => r.name)") == []


def until(driver, script, expected):
    """Plotly works in steps: wait for the value, but not forever."""
    end = time.monotonic() + 10
    while (found := driver.execute_script("return " + script)) != expected and time.monotonic() < end:
        time.sleep(0.05)
    assert found == expected


CURVES = "document.querySelector('.curves')"
LINES = f"{CURVES}.querySelectorAll('.scatterlayer path.js-line').length"
FILLS = f"[...{CURVES}.querySelectorAll('path.js-fill')].filter((p) => p.getAttribute('d')).length"
CROSSES = f"{CURVES}.querySelectorAll('path.point').length"


def of(kind, name):
    """A trace of the plot, by what it is and whose."""
    return f"{CURVES}.data.find((t) => t.meta === '{kind}' && t.legendgroup === '{name}')"


def choose(driver, control, value):
    script = "const c = document.querySelector(`.controls [name=${arguments[0]}]`); c.value = arguments[1];"
    driver.execute_script(script + "c.dispatchEvent(new Event('input', {bubbles: true}))", control, value)


def test_it_draws(opened):
    until(opened, f"{CURVES}.data.map((t) => t.meta)", ["band", "line", "line", "line", "cross"])
    until(opened, FILLS, 1)
    until(opened, CROSSES, 1)
    paths = f"[...{CURVES}.querySelectorAll('.scatterlayer path.js-line')].every((p) => p.getBBox().width > 0)"
    until(opened, paths, True)
    until(opened, f"{CURVES}.layout.shapes[0].y0", 0.5)  # the target
    until(opened, f"{CURVES}.layout.yaxis.range.map((v) => Math.round(100 * v))", [18, 82])  # 0.2 to 0.8, some room
    until(opened, "document.querySelectorAll('.split .heatmaplayer image').length", 1)
    until(opened, "document.querySelectorAll('#extra-0 .heatmaplayer image').length", 2)
    assert opened.title == "Methods & more"
    assert opened.execute_script("return document.images.length") == 0  # the hostile name is text
    legend = opened.execute_script(f"return [...{CURVES}.querySelectorAll('.legendtext')].map((t) => t.textContent)")
    assert legend == ["steady", HOSTILE, "lost"]


def test_the_legend_hides_a_line_and_its_band_together(opened):
    drawn = opened.execute_script("return " + LINES)
    until(opened, FILLS, 1)
    toggle = opened.find_element("css selector", ".curves .legendtoggle")
    webdriver.ActionChains(opened).move_to_element(toggle).click().perform()
    hidden = f"[{of('line', 'steady')}.visible, {of('band', 'steady')}.visible]"
    until(opened, hidden, ["legendonly"] * 2)
    until(opened, FILLS, 0)
    until(opened, LINES, drawn - 2)  # the line, and the band's outline
    choose(opened, "x", "bytes")
    until(opened, hidden, ["legendonly"] * 2)  # still hidden on another axis
    time.sleep(0.5)  # two clicks at once would be a double click, which is another command
    webdriver.ActionChains(opened).move_to_element(toggle).click().perform()
    until(opened, FILLS, 1)
    until(opened, LINES, drawn)


def test_axes_and_bandwidth_change_the_data(opened):
    x = f"{of('line', 'steady')}.x"
    until(opened, x, [0, 1, 2, 3, 4])
    choose(opened, "x", "models")
    until(opened, f"{of('line', HOSTILE)}.x", [0, 2, 4, 6, 8])
    choose(opened, "x", "bytes")
    until(opened, x, [4000 * t for t in range(5)])
    choose(opened, "x", "time")
    until(opened, x, [2000 * t / 20e6 for t in range(5)])
    choose(opened, "bandwidth", "0.5")
    until(opened, x, [2000 * t / 0.5e6 for t in range(5)])
    until(opened, f"{CURVES}.layout.xaxis.title.text", "seconds of transmission at 0.5 MB/s")
    choose(opened, "bandwidth", "0")  # half typed: the last drawing stays
    until(opened, x, [2000 * t / 0.5e6 for t in range(5)])


def test_metric_and_scale_change_the_drawing(opened):
    choose(opened, "metric", "train loss")
    until(opened, f"{of('line', HOSTILE)}.y", [1.9, 1.7, 1.6, 1.6, 1.5])
    until(opened, f"{CURVES}.layout.shapes.length", 0)  # the target is of another metric
    opened.find_element("css selector", ".controls [name=log]").click()
    until(opened, f"{CURVES}.layout.yaxis.type", "log")


def test_the_buttons_save_a_picture_and_upload_nothing(opened):
    """Plotly has one that sends the data to its makers."""
    titles = "[...document.querySelectorAll('.modebar-btn')].map((b) => b.dataset.title)"
    known = {"Download plot as a PNG", "Zoom", "Pan", "Reset axes"}
    assert set(opened.execute_script("return " + titles)) == known
    saved = opened.execute_async_script(f"Plotly.toImage({CURVES}).then((url) => arguments[0](url.slice(0, 22)))")
    assert saved == "data:image/png;base64,"


def test_the_table_sorts(opened):
    names = "[...document.querySelectorAll('tbody tr')].map((r) => r.cells[0].textContent)"
    until(opened, names, ["steady", HOSTILE, "lost"])
    heads = opened.find_elements("css selector", "th button")
    heads[2].click()  # models, increasing
    until(opened, names, ["steady", HOSTILE, "lost"])
    heads[2].click()  # decreasing; what is not reached stays last
    until(opened, names, [HOSTILE, "steady", "lost"])


def test_it_fits_a_phone_and_the_dark(opened):
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    ink = f"{CURVES}.layout.font.color"
    light = opened.execute_script("return " + ink)
    size = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    until(opened, f"{ink} !== '{light}'", True)
    until(opened, f"{CURVES}.layout.legend.orientation", "h")
    until(opened, "document.documentElement.scrollWidth <= 390", True)
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
