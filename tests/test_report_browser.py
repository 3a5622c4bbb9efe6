"""A report in a real browser: it draws, its controls work, it logs no error and asks the network for nothing."""

import math
import shutil
import time

import pytest

from fedloom import report
from fedloom.experiments.study import Study
from fedloom.experiments.terms import Terms
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
        terms=Terms(crossing="first"),
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
    until(opened, f"{CURVES}.data.map((t) => t.meta)", ["line", "cross", "line", "seeds", "line"])  # the best on top
    until(opened, CROSSES, 1)
    paths = f"[...{CURVES}.querySelectorAll('.scatterlayer path.js-line')].every((p) => p.getBBox().width > 0)"
    until(opened, paths, True)
    until(opened, f"{CURVES}.layout.shapes[0].y0", 0.5)  # the target
    until(opened, f"{CURVES}.layout.yaxis.range.map((v) => Math.round(100 * v))", [18, 82])  # 0.2 to 0.8, some room
    until(opened, "document.querySelectorAll('.split .heatmaplayer image').length", 1)
    until(opened, "document.querySelectorAll('#extra-0 .heatmaplayer image').length", 2)
    assert opened.title == "Methods & more"
    assert opened.execute_script("return document.images.length") == 0  # the hostile name is text
    names = opened.execute_script("return [...document.querySelectorAll('[data-name]')].map((b) => b.textContent)")
    assert names == ["steady", HOSTILE, "lost"]
    labels = f"[...{CURVES}.querySelectorAll('.annotation-text')].map((t) => t.textContent).sort()"
    until(opened, labels, sorted(["steady", HOSTILE[:29] + "…", "lost", "target 0.5"]))


def test_a_name_switches_colour_bands_and_label(opened):
    names = f"{CURVES}.layout.annotations.filter((a) => a.name === 'label').length"
    until(opened, names, 3)
    ink = opened.execute_script(f"return {of('line', 'steady')}.line.color")
    button = opened.find_element("css selector", "[data-name=steady]")
    button.click()
    until(opened, names, 2)
    assert button.get_attribute("aria-pressed") == "false"
    until(opened, f"!!{of('seeds', 'steady')}", False)
    until(opened, f"{of('line', 'steady')}.line.color", ink)  # the pointer is still on its name
    opened.execute_script("arguments[0].blur()", button)
    webdriver.ActionChains(opened).move_to_element(opened.find_element("css selector", "h1")).perform()
    grey = opened.execute_script("return colour('faint')")
    until(opened, f"{of('line', 'steady')}.line.color", grey)
    choose(opened, "x", "bytes")
    until(opened, f"{of('line', 'steady')}.line.color", grey)  # still grey on another axis
    opened.find_element("css selector", "[name=hide]").click()
    until(opened, f"!!{of('line', 'steady')}", False)
    button.send_keys(" ")  # as well by the keyboard, which also lights it
    until(opened, f"{of('line', 'steady')}.line.color", ink)
    until(opened, names, 3)


def test_axes_and_bandwidth_change_the_data(opened):
    x = f"{of('line', 'steady')}.x"
    until(opened, x, [0, 1, 2, 3, 4])
    choose(opened, "x", "models")
    until(opened, f"{of('line', HOSTILE)}.x", [0, 2, 4, 6, 8])
    choose(opened, "x", "bytes")
    until(opened, x, [4000 * t for t in range(5)])
    choose(opened, "x", "gradients")
    until(opened, f"{CURVES}.layout.xaxis.title.text", "gradients of single examples, all clients")
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
    opened.find_element("css selector", ".controls [name=logx]").click()
    until(opened, f"{CURVES}.layout.xaxis.type", "log")
    until(opened, f"{CURVES}.layout.xaxis.range.map((v) => Math.abs(10 ** v - Math.round(10 ** v)) < 0.1)", [True] * 2)
    labels = f"{CURVES}.layout.annotations.filter((a) => a.name === 'label').map((a) => 10 ** a.x).sort()"
    until(opened, labels, [1, 4, 4])  # at the last rounds


def rounded(script):
    return f"{script}.map((v) => Math.round(1e4 * v) / 1e4)"


def test_smoothing_is_the_mean_of_the_last_evaluations(opened):
    line = of("line", "steady")
    until(opened, rounded(line + ".y"), [0.1, 0.35, 0.5, 0.65, 0.75])
    choose(opened, "smooth", "2")
    until(opened, rounded(line + ".y"), [0.1, 0.225, 0.425, 0.575, 0.7])
    until(opened, f"{CURVES}.layout.yaxis.title.text", "test accuracy, mean of the last 2 evaluations")
    until(opened, f"{line}.hovertemplate.includes('mean of the last 2 evaluations')", True)
    until(opened, "document.querySelector('[name=smoothed]').value", "last 2 evaluations")
    raw = "data.tasks[0].series[0].metrics['test accuracy'][0]"
    until(opened, raw, [0.1, 0.5, 0.6, 0.7, 0.8])  # the data stay


def test_bands_are_the_interval_of_the_mean_or_the_seeds(opened):
    until(
        opened,
        rounded(f"{of('seeds', 'steady')}.y.filter((v) => v !== null)"),
        [0.1, 0.5, 0.6, 0.7, 0.8, 0.1, 0.2, 0.4, 0.6, 0.7],
    )
    choose(opened, "bands", "interval")
    until(opened, FILLS, 1)
    half = 12.7062 * 0.05  # t of one degree of freedom; the two seeds differ by 0.1, so the error of their mean is 0.05
    ends = f"[{of('band', 'steady')}.y[4], {of('band', 'steady')}.y[5]]"
    until(opened, rounded(ends), [round(0.75 + half, 4), round(0.75 - half, 4)])
    choose(opened, "bands", "none")
    until(opened, f"{CURVES}.data.map((t) => t.meta)", ["line", "cross", "line", "line"])


def test_the_buttons_save_a_picture_and_upload_nothing(opened):
    """Plotly has one that sends the data to its makers."""
    titles = "[...document.querySelectorAll('.modebar-btn')].map((b) => b.dataset.title)"
    known = {"Download plot as a PNG", "Zoom", "Pan", "Reset axes"}
    assert set(opened.execute_script("return " + titles)) == known
    saved = opened.execute_async_script(f"Plotly.toImage({CURVES}).then((url) => arguments[0](url.slice(0, 22)))")
    assert saved == "data:image/png;base64,"


def test_the_table_sorts(opened):
    costs = "document.querySelectorAll('table.sortable')[1]"
    names = f"[...{costs}.tBodies[0].rows].map((r) => r.cells[0].textContent)"
    until(opened, names, ["steady", HOSTILE, "lost"])
    heads = opened.execute_script(f"return [...{costs}.querySelectorAll('th button')]")
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
    until(opened, "document.documentElement.scrollWidth <= 390", True)
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
