"""Pictures: an ordinary matplotlib function drawn on one persistent figure.

A *draw function* is `draw(fig, **values) -> str`. It draws on `fig` with matplotlib's
object interface and returns the alt text: a sentence or two that say what is to be seen
at these values. `picture` shows it once, `scrub` puts sliders on its values.
"""

import base64
import html
import io
from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from course_lib.notebook.plots.style import WIDE, Size, current

Draw = Callable[..., str]

SIZE = WIDE


class Canvas:
    """One figure that a draw function is drawn on again and again.

    The layout is computed at the first drawing and kept: axes that stand in the same
    place at every value do not jump when a tick label grows, and a later drawing saves
    half of its time. The style is that of the moment when the canvas was made, so that
    what a reader sees again is what was there before.
    """

    def __init__(self, draw: Draw, size: Size = SIZE) -> None:
        self._draw = draw
        self._boxes: list[Any] | None = None
        self.style = current()
        with self.style.applied():
            self.figure = Figure(figsize=size)
        self._agg = FigureCanvasAgg(self.figure)
        scale = self.style.medium.css_pixels_per_inch
        self.css_size = (round(size[0] * scale), round(size[1] * scale))

    def draw(self, values: dict[str, Any]) -> str:
        """Draw at `values` and return the alt text."""
        with self.style.applied():
            self.figure.clear()
            alt = self._draw(self.figure, **values)
            if not isinstance(alt, str) or not alt:
                name = getattr(self._draw, "__name__", repr(self._draw))
                raise TypeError(
                    f"draw: {name} returned {alt!r}; expected its alt text, a str"
                )
            if self._boxes is None:
                self._boxes = self._laid_out()
        for axes, box in zip(self.figure.axes, self._boxes, strict=False):
            axes.set_position(box)
        return alt

    def _laid_out(self) -> list[Any]:
        if not any(axes.get_subplotspec() for axes in self.figure.axes):
            return []  # the draw function has placed its axes itself
        self.figure.set_layout_engine("constrained")
        self.figure.draw_without_rendering()
        self.figure.set_layout_engine("none")
        return [axes.get_position() for axes in self.figure.axes]

    def image(self, kind: str = "png", colours: int = 0, **options: Any) -> bytes:
        """Return the drawing as an image file of `kind`: "png" or "webp".

        With `colours`, at most that many are kept: a plot of lines loses nothing and
        its file shrinks to a third. Further options are Pillow's. `savefig` is not used
        because it draws the figure twice.
        """
        with self.style.applied():  # ticks are made as late as this
            self._agg.draw()
        image = Image.fromarray(np.asarray(self._agg.buffer_rgba())).convert("RGB")
        if colours:
            image = image.quantize(colours, dither=Image.Dither.NONE)
        buffer = io.BytesIO()
        image.save(buffer, format=kind, **options)
        return buffer.getvalue()

    def small_png(self) -> bytes:
        """Return the drawing as the PNG that is kept in a notebook's file."""
        return self.image(colours=128, optimize=True)


def widget_bundle(model_id: str) -> dict[str, Any]:
    """Return the MIME bundle of a live widget, alike for ipywidgets 7 and 8."""
    view = {"version_major": 2, "version_minor": 0, "model_id": model_id}
    return {"application/vnd.jupyter.widget-view+json": view}


def png_bundle(
    png: bytes, alt: str, css_size: tuple[int, int]
) -> tuple[dict[str, str], dict[str, Any]]:
    """Return a picture as a MIME bundle and its metadata, with `alt` for both."""
    data = {"image/png": base64.b64encode(png).decode("ascii"), "text/plain": alt}
    width, height = css_size
    return data, {"image/png": {"alt": alt, "width": width, "height": height}}


class Picture:
    """A drawing that shows itself in a notebook; `alt` is what it says in words."""

    def __init__(self, png: bytes, alt: str, css_size: tuple[int, int]) -> None:
        self.png, self.alt, self.css_size = png, alt, css_size

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, Any]]:
        data, metadata = png_bundle(self.png, self.alt, self.css_size)
        # JupyterLab gives a bare PNG no alt text, so it gets an element that has one;
        # the build keeps the PNG only.
        width, height = self.css_size
        data["text/html"] = (
            f'<img src="data:image/png;base64,{data["image/png"]}" width="{width}" '
            f'height="{height}" alt="{html.escape(self.alt, quote=True)}">'
        )
        return data, metadata

    def __repr__(self) -> str:
        return self.alt


def picture(draw: Draw, *, size: Size = SIZE, **values: Any) -> Picture:
    """Draw `draw(fig, **values)` once and return it as a picture with alt text.

    Args:
        draw: draw function; returns its alt text.
        size: width and height in inches.
        values: passed on to `draw`.
    """
    canvas = Canvas(draw, size)
    alt = canvas.draw(values)
    return Picture(canvas.small_png(), alt, canvas.css_size)
