"""Colours: distinct for everybody, and visible on both backgrounds. Simulated as in Machado et al. (2009)."""

import itertools
import re
from importlib import resources

import numpy as np
import pytest

from fedloom.report import forest
from fedloom.report.series import COLOURS

# Machado, Oliveira and Fernandes, "A physiologically-based model for simulation of color vision deficiency", table 1,
# severity 1.0: for linear RGB.
VISIONS = {
    "full": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
DISTINCT = 14.0  # CIEDE2000; about 2 is just noticeable for large areas side by side, thin lines need far more
EARLIER = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#8A8A8A")  # before


def linear(colour):
    values = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(colour, vision):
    seen = np.clip(np.asarray(VISIONS[vision]) @ linear(colour), 0, 1)
    share = TO_XYZ @ seen / (TO_XYZ @ np.ones(3))
    f = np.where(share > 216 / 24389, np.cbrt(share), (24389 / 27 * share + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def ciede2000(one, other):
    """Sharma, Wu and Dalal (2005), with their order of the steps."""
    (l1, a1, b1), (l2, a2, b2) = one, other
    mean = (np.hypot(a1, b1) + np.hypot(a2, b2)) / 2
    stretch = 1.5 - 0.5 * np.sqrt(mean**7 / (mean**7 + 25.0**7))
    c1, c2 = np.hypot(stretch * a1, b1), np.hypot(stretch * a2, b2)
    h1, h2 = (np.degrees(np.arctan2(b, stretch * a)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = 0.0 if c1 * c2 == 0 else (h2 - h1 + 180) % 360 - 180
    hue = h1 + h2 if c1 * c2 == 0 else (h1 + turn / 2) % 360
    d_hue = 2 * np.sqrt(c1 * c2) * np.sin(np.radians(turn / 2))
    light, chroma = (l1 + l2) / 2, (c1 + c2) / 2
    t = 1 + sum(
        weight * np.cos(np.radians(times * hue + shift))
        for weight, times, shift in ((-0.17, 1, -30), (0.24, 2, 0), (0.32, 3, 6), (-0.2, 4, -63))
    )
    s_l = 1 + 0.015 * (light - 50) ** 2 / np.sqrt(20 + (light - 50) ** 2)
    s_c, s_h = 1 + 0.045 * chroma, 1 + 0.015 * chroma * t
    bend = -2 * np.sqrt(chroma**7 / (chroma**7 + 25.0**7)) * np.sin(np.radians(60 * np.exp(-(((hue - 275) / 25) ** 2))))
    x, y, z = (l2 - l1) / s_l, (c2 - c1) / s_c, d_hue / s_h
    return float(np.sqrt(x * x + y * y + z * z + bend * y * z))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [  # from table 1 of Sharma, Wu and Dalal
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, -1.3802, -84.2814), (50, 0, -82.7485), 1.0),
        ((50, 2.5, 0), (73, 25, -18), 27.1492),
        ((50, 2.5, 0), (56, -27, -3), 31.9030),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((22.7233, 20.0904, -46.6940), (23.0331, 14.9730, -42.5619), 2.0373),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_the_distance_is_that_of_the_paper(one, other, expected):
    assert ciede2000(one, other) == pytest.approx(expected, abs=1e-4)


def nearest(colours, vision):
    return min(ciede2000(lab(a, vision), lab(b, vision)) for a, b in itertools.combinations(colours, 2))


@pytest.mark.parametrize("vision", VISIONS)
def test_curves_with_the_same_dash_have_distinct_colours(vision):
    """A colour appears once with each dash, so every two of them can appear together."""
    assert nearest(COLOURS, vision) >= DISTINCT
    assert nearest((forest.TIED, forest.WORSE), vision) >= 2 * DISTINCT


def test_earlier_colours_were_not_distinct():
    """The test can fail."""
    assert nearest(EARLIER, "deuteranopia") < DISTINCT


def contrast(one, other):
    bright, dark = sorted((float(TO_XYZ[1] @ linear(c)) for c in (one, other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def test_colours_are_visible_on_both_backgrounds():
    style = resources.files("fedloom.report").joinpath("page.css").read_text()
    backgrounds = re.findall(r"--background: (#[0-9a-f]{6})", style)
    assert len(backgrounds) == 2
    for colour in (*COLOURS, forest.TIED, forest.WORSE):
        assert min(contrast(colour, background) for background in backgrounds) >= 3  # WCAG 2.2, 1.4.11
