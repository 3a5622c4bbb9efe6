"""Make the picture of a report that the README shows: python docs/screenshot.py REPORT.html PICTURE.png

Needs chromium and chromedriver, and the packages selenium and pillow. Width, height and "dark" may follow.
"""

import io
import pathlib
import shutil
import sys

from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service


def screenshot(report: pathlib.Path, picture: pathlib.Path, width: int, height: int, dark: bool) -> None:
    """The upper part of the page, as it looks in a window of that size."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for argument in ("--headless=new", "--no-sandbox", "--hide-scrollbars"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        driver.get(report.resolve().as_uri())
        driver.set_script_timeout(30)
        driver.execute_async_script("const done = arguments[0]; setTimeout(done, 500)")
        image = Image.open(io.BytesIO(driver.get_screenshot_as_png()))
    finally:
        driver.quit()
    image.convert("RGB").save(picture, optimize=True)


if __name__ == "__main__":
    where = [pathlib.Path(argument) for argument in sys.argv[1:3]]
    sizes = [int(argument) for argument in sys.argv[3:5]] or [1400, 1380]
    screenshot(where[0], where[1], sizes[0], sizes[1], "dark" in sys.argv)
