"""Training curves of one or several runs; `live` draws them while a run goes on."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from course_lib.notebook.plots.lines import (
    MAX_SERIES,
    line_width,
    muted,
    series,
    short_ticks,
)
from course_lib.notebook.words import word

History = Mapping[str, Sequence[float]]
"""One run: the values of each metric, all of one length."""

MAX_PANELS = 6
DETAILED_CURVES = 2  # of more than these, the alt text tells the range


def training_curves(
    figure: Figure,
    histories: Mapping[str, History],
    metrics: Sequence[str],
    x: str = "update",
) -> str:
    """Draw one panel a metric, and in it one line a history.

    Args:
        figure: drawn on.
        histories: runs by their names in the legend, such as "seed 0", at most 6; a
            run alone may be called "". A value that is not finite leaves a gap.
        metrics: keys of the histories, 1 to 6.
        x: key of the horizontal axis; its values grow.

    Returns:
        Alt text: each curve's last, lowest and highest value and its trend.

    Raises:
        ValueError: too many metrics or histories, a key that a history lacks, values of
            different lengths, or an `x` that does not grow.
    """
    _refuse_count("metrics", len(metrics), MAX_PANELS)
    if histories:
        _refuse_count("histories", len(histories), MAX_SERIES)
    for name, history in histories.items():
        _refuse_unfit(f"histories[{name!r}]", history, metrics, x)
    names = list(histories) if any(histories) else []
    columns = _legend_columns(figure, names)
    grid = panel_grid(figure, len(metrics), math.ceil(len(names) / columns))
    for axes, metric in zip(grid, metrics, strict=True):
        axes.set_title(_name(metric), fontsize="small" if len(grid) > 2 else "medium")
        _panel(axes, list(histories.values()), metric, x)
    if names:
        shown = grid[0].lines
        figure.legend(shown, names, loc="upper left", ncols=columns, columnspacing=1.4)
    said = [_panel_said(histories, metric, x) for metric in metrics]
    return word("alt.training_curves", x=_name(x), panels=". ".join(said))


def _refuse_count(argument: str, count: int, most: int) -> None:
    if not 1 <= count <= most:
        raise ValueError(f"{argument}: {count} of them; expected 1 to {most}")


def _refuse_unfit(
    argument: str, history: History, metrics: Sequence[str], x: str
) -> None:
    for key in (x, *metrics):
        if key not in history:
            known = ", ".join(sorted(history))
            raise ValueError(f"{argument}: no {key!r}; it has {known}")
        if len(history[key]) != len(history[x]):
            raise ValueError(
                f"{argument}: {len(history[key])} values of {key!r} and "
                f"{len(history[x])} of {x!r}; expected as many"
            )
    for before, after in pairwise(history[x]):
        if not before < after:
            raise ValueError(
                f"{argument}: {x!r} goes from {before} to {after}; expected growing"
            )


def _em() -> float:
    """Return the size of ordinary text in inches; a letter is about half as wide."""
    return float(matplotlib.rcParams["font.size"]) / 72


def _legend_columns(figure: Figure, names: list[str]) -> int:
    """Return how many entries of the legend stand side by side."""
    longest = max(map(len, names), default=0)
    entry = (3.6 + 0.5 * longest) * _em()  # line, gaps and name
    return min(len(names), max(1, int(figure.get_size_inches()[0] / entry))) or 1


def panel_grid(figure: Figure, count: int, legend_rows: int) -> list[Axes]:
    """Return axes at places that no tick label moves: a live picture must not jump.

    Args:
        figure: drawn on.
        count: of panels, 1 to 6; more than three stand in two rows.
        legend_rows: how many rows of a legend to leave room for above them.
    """
    columns = count if count <= 3 else (count + 1) // 2
    rows = 1 if count <= 3 else 2
    width, height = figure.get_size_inches()
    em = _em()
    left, right, below, above = 4.3 * em, 0.7 * em, 3.1 * em, 1.9 * em
    wide = width / columns
    legend = (1.2 * legend_rows + 0.4) * em if legend_rows else 0
    high = (height - legend) / rows
    return [
        figure.add_axes(
            (
                (place % columns * wide + left) / width,
                ((rows - 1 - place // columns) * high + below) / height,
                (wide - left - right) / width,
                (high - below - above) / height,
            )
        )
        for place in range(count)
    ]


def _panel(axes: Axes, histories: list[History], metric: str, x: str) -> None:
    axes.set_xlabel(_name(x))
    if not any(math.isfinite(v) for one in histories for v in one[metric]):
        axes.set(xticks=[], yticks=[])
        none = axes.text(0.5, 0.5, word("plot.no_values"), color=muted())
        none.set(ha="center", va="center", transform=axes.transAxes)
    else:
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(4))
            short_ticks(axis)
    for index, history in enumerate(histories):
        values = [v if math.isfinite(v) else math.nan for v in history[metric]]
        look = series(index)
        if len(histories) > 1:  # a few markers each, none on top of another curve's
            step = max(1, len(values) // 4)
            look |= {"markevery": (index * step // MAX_SERIES, step)}
            look |= {"linewidth": line_width(0.8), "markersize": 3 * line_width()}
        else:
            look["markevery"] = [len(values) - 1] if values else []
        axes.plot(history[x], values, **look)


def _name(metric: str) -> str:
    try:
        return word(f"plot.metric.{metric}")
    except KeyError:  # a learner's own
        return metric.replace("_", " ")


def _panel_said(histories: Mapping[str, History], metric: str, x: str) -> str:
    curves = [_curve_said(one[x], one[metric]) for one in histories.values()]
    if len(curves) > DETAILED_CURVES:
        said = _range_said(histories, metric)
    else:
        pairs = zip(histories, curves, strict=True)
        said = ", ".join(
            word("alt.curve_named", name=name, curve=curve) if name else curve
            for name, curve in pairs
        )
    text = said or word("plot.no_values")
    return word("alt.curves_panel", metric=_name(metric), curves=text)


def _range_said(histories: Mapping[str, History], metric: str) -> str:
    """Return where the curves end and how many of them rise and fall."""
    finite = {
        name: [v for v in history[metric] if math.isfinite(v)]
        for name, history in histories.items()
    }
    ends = {name: values[-1] for name, values in finite.items() if values}
    if not ends:
        return word("plot.no_values")
    trends = Counter(_trend(finite[name]) for name in ends)
    shown = [
        word("alt.trends", count=trends[trend], trend=word(f"alt.trend.{trend}"))
        for trend in ("rising", "level", "falling")
        if trends[trend]
    ]
    lowest, highest = min(ends, key=ends.__getitem__), max(ends, key=ends.__getitem__)
    return word(
        "alt.curves_range",
        count=len(ends),
        low=_number(ends[lowest]),
        low_name=lowest,
        high=_number(ends[highest]),
        high_name=highest,
        trends=", ".join(shown),
    )


def _curve_said(xs: Sequence[float], values: Sequence[float]) -> str:
    points = [(v, at) for v, at in zip(values, xs, strict=True) if math.isfinite(v)]
    if not points:
        return word("plot.no_values")
    low, low_at = min(points, key=lambda point: point[0])
    high, high_at = max(points, key=lambda point: point[0])
    curve = word(
        "alt.curve",
        last=_number(points[-1][0]),
        low=_number(low),
        low_at=_number(low_at),
        high=_number(high),
        high_at=_number(high_at),
        trend=word(f"alt.trend.{_trend([value for value, _ in points])}"),
    )
    gaps = len(values) - len(points)
    if gaps:
        return word("alt.curve_gaps", curve=curve, gaps=gaps, count=len(values))
    return curve


def _number(value: float) -> str:
    if value == round(value) or abs(value) >= 1000:
        return f"{value:,.0f}".replace("-", "−")
    return f"{value:.3g}".replace("-", "−")


def _trend(values: Sequence[float]) -> str:
    """Compare the last quarter with the first; a fifth of the range is a trend."""
    quarter = max(1, len(values) // 4)
    rise = (sum(values[-quarter:]) - sum(values[:quarter])) / quarter
    threshold = (max(values) - min(values)) / 5
    if threshold == 0 or abs(rise) < threshold:
        return "level"
    return "rising" if rise > 0 else "falling"
