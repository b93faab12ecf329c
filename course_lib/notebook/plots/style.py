"""Themes, media and sizes of all plots, and the reader's choice among them.

A reader chooses once: `plots.use(theme="dark", medium="projector")`. Draw functions ask
for their colours while they draw, so the choice reaches every picture made after it; a
picture that stands already keeps what it was made with.

People who lack the red or the green cone tell every two colours of a theme apart, and
each one stands out against its ground (a test simulates both and measures).
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
from cycler import cycler

Size = tuple[float, float]

# Inches. All fit on a slide below its heading; WIDE holds two panels side by side.
STRIP: Size = (7.2, 2.2)
WIDE: Size = (7.2, 3.0)
SQUARE: Size = (4.0, 3.9)
PANELS: Size = (7.2, 3.9)


@dataclass(frozen=True)
class Theme:
    """Colours on one ground. A colour keeps its name from theme to theme."""

    ground: str
    ink: str
    """Text, axes and what is exact."""
    muted: str
    """What stays in the background, and still has to be read."""
    faint: str
    """Grid lines and fillings, which nobody has to read."""
    series: tuple[str, ...]
    """Blue, orange, green, pink, purple, teal."""


THEMES = {
    "light": Theme(
        ground="#ffffff",
        ink="#111111",
        muted="#636363",
        faint="#e4e4e4",
        series=("#2b73f0", "#c9780f", "#17600f", "#ef1c8e", "#7a0a72", "#2f9ca9"),
    ),
    "dark": Theme(
        ground="#111111",
        ink="#f2f2f2",
        muted="#949494",
        faint="#333333",
        series=("#5a8dff", "#dfa12a", "#75f8a6", "#f2286a", "#9a66a6", "#3dc8df"),
    ),
}


@dataclass(frozen=True)
class Medium:
    """Where a picture is looked at, and so how large its parts are."""

    text: float
    """Ordinary text in points; small text is 5/6 of it."""
    line: float
    """Width of a line in points."""
    css_pixels_per_inch: float
    """How large the picture stands on the page."""
    dpi: float
    """How many pixels it is made of."""


MEDIA = {
    "notebook": Medium(text=11.0, line=1.5, css_pixels_per_inch=100, dpi=120),
    # A deck enlarges it to the slide by itself; more pixels than these would burst the
    # limit of a scrub's forty frames.
    "slide": Medium(text=12.5, line=2.0, css_pixels_per_inch=100, dpi=120),
    # A notebook that is taught from: a slide's picture at a slide's size.
    "projector": Medium(text=12.5, line=2.0, css_pixels_per_inch=145, dpi=160),
}


@dataclass(frozen=True)
class Style:
    """A theme on a medium."""

    theme: Theme
    medium: Medium

    def settings(self) -> dict[str, Any]:
        """Return matplotlib's settings, text sizes relative to the medium's."""
        theme, line = self.theme, self.medium.line
        ink = dict.fromkeys(
            (
                *("text.color", "axes.labelcolor", "axes.edgecolor"),
                *("xtick.color", "ytick.color"),
            ),
            theme.ink,
        )
        ground = dict.fromkeys(
            ["figure.facecolor", "axes.facecolor", "savefig.facecolor"], theme.ground
        )
        small = dict.fromkeys(
            ["axes.labelsize", "xtick.labelsize", "ytick.labelsize", "legend.fontsize"],
            "small",
        )
        return (
            ink
            | ground
            | small
            | {
                "axes.grid": True,
                "axes.linewidth": 0.5 * line,
                "axes.prop_cycle": cycler(color=theme.series),
                "axes.spines.right": False,
                "axes.spines.top": False,
                "axes.titlelocation": "left",
                "axes.titlesize": "medium",
                "figure.constrained_layout.h_pad": 0.08,
                "figure.constrained_layout.w_pad": 0.08,
                "figure.dpi": self.medium.dpi,
                "font.family": ["DejaVu Sans"],  # matplotlib brings it along
                "font.size": self.medium.text,
                "grid.color": theme.faint,
                "grid.linewidth": 0.5 * line,
                "image.cmap": "cividis",  # alike for every form of colour vision
                "legend.frameon": False,
                "lines.linewidth": line,
                "lines.markersize": 4 * line,
            }
        )

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Draw in this style, whatever a matplotlibrc or another cell has set."""
        global _drawing
        before, _drawing = _drawing, self
        settings: Any = self.settings()  # matplotlib types every key by its name
        try:
            with matplotlib.rc_context():
                matplotlib.rcdefaults()
                matplotlib.rcParams.update(settings)
                yield
        finally:
            _drawing = before


_theme, _medium = "light", "notebook"
_drawing: Style | None = None


def use(*, theme: str | None = None, medium: str | None = None) -> None:
    """Choose how pictures look from now on, in this notebook.

    Args:
        theme: "light" or "dark"; None leaves it as it is.
        medium: "notebook", "slide" or "projector"; None leaves it as it is.

    Raises:
        ValueError: another name.
    """
    global _theme, _medium
    _refuse_unknown("theme", theme, THEMES)
    _refuse_unknown("medium", medium, MEDIA)
    _theme, _medium = theme or _theme, medium or _medium


def _refuse_unknown(argument: str, name: str | None, known: dict[str, Any]) -> None:
    if name is not None and name not in known:
        raise ValueError(f"{argument}: {name!r}; expected one of {', '.join(known)}")


def current() -> Style:
    """Return the style of the drawing under way, or else the one that is chosen.

    Where pages are built the builder chooses the medium: the variable COURSE_STATIC is
    set, to a medium's name or, for the slides, to anything else.
    """
    if _drawing is not None:
        return _drawing
    static = os.environ.get("COURSE_STATIC", "")
    built_for = static if static in MEDIA else "slide"
    return Style(THEMES[_theme], MEDIA[built_for if static else _medium])
