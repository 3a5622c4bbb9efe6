"""The controls above the curves of the page: what is drawn, against what, how smooth, and which curves are coloured."""

from collections.abc import Mapping, Sequence
from html import escape

from fedloom.experiments.result import Result
from fedloom.report.series import BANDWIDTH, BEST, FEW, axes_of, by_name, metrics

AXIS_NAMES = {"time": "time at a bandwidth", "clock": "simulated time"}


def controls(results: Sequence[Result], chosen: str) -> str:
    """What the reader can change about the curves."""
    names = "".join(f"<option{' selected' if n == chosen else ''}>{escape(n)}</option>" for n in metrics(results))
    axes = "".join(
        f'<option value="{axis}"{" selected" if axis == "clock" else ""}>{AXIS_NAMES.get(axis, axis)}</option>'
        for axis in axes_of(results)
    )
    seeds = max((len(seeds) for seeds in by_name(results).values()), default=0)
    kinds = {"interval": "95% interval of the mean", "seeds": "all seeds as thin lines", "none": "none"}
    first = "interval" if seeds >= FEW else "seeds"
    bands = "".join(f'<option value="{k}"{" selected" if k == first else ""}>{v}</option>' for k, v in kinds.items())
    longest = max((len(r.evaluated) for r in results), default=0)
    return (
        f'<div class="controls"><label>metric<select name="metric">{names}</select></label>'
        f'<label>against<select name="x">{axes}</select></label>'
        f'<label hidden>bandwidth, MB/s<input name="bandwidth" type="number" min="0" step="any" value="{BANDWIDTH:g}">'
        f'</label><label{"" if seeds > 1 else " hidden"}>bands<select name="bands">{bands}</select></label>'
        '<label><span>smoothing: <output name="smoothed">none</output></span>'
        f'<input name="smooth" type="range" min="1" max="{max(1, min(25, longest // 2))}" value="1"></label>'
        '<label class="check"><input name="logx" type="checkbox">logarithmic x</label>'
        '<label class="check"><input name="log" type="checkbox">logarithmic y</label>'
        '<label class="check"><input name="hide" type="checkbox">hide grey curves</label></div>'
    )


def name_buttons(names: Sequence[str], shown: Mapping[str, str], looks: Mapping[str, tuple[str, str]]) -> str:
    """The names of the curves as buttons that switch their colour on and off."""
    all_ = ""
    if len(names) > BEST:
        all_ = f'<button type="button" data-first="{BEST}">best {BEST}</button>'
        all_ += f'<button type="button" data-first="{len(names)}">all</button>'
    buttons = []
    for i, name in enumerate(names):
        colour, dash = looks[name]
        css = {"solid": "solid", "dash": "dashed", "dot": "dotted"}[dash]
        buttons.append(
            f'<button type="button" data-name="{escape(name)}" aria-pressed="{str(i < BEST).lower()}">'
            f'<i style="border-top:3px {css} {colour}"></i>{escape(shown[name])}</button>'
        )
    return f'<div class="names" role="group" aria-label="curves in colour">{all_}{"".join(buttons)}</div>'


def reading(drawn: int, results: Sequence[Result], noun: str) -> str:
    """How to read the curves."""
    names = len(by_name(results))
    which = f"The best {BEST} of the table are in colour: click" if drawn > BEST else "Click"
    some = f"Of {names} {noun}s, the best {drawn} are drawn. " if drawn < names else ""
    return (
        f"{some}Lines: mean over seeds. Crosses: where a run diverged. {which} a name or a curve to colour it or to "
        "make it grey. The vertical scale ignores the first fifth of the rounds; double-click the plot to see "
        "everything."
    )
