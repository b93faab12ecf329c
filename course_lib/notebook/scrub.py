"""`scrub`: a picture with sliders, live in a notebook and kernel-less on a page.

Live, the front end (`scrub.js`) asks for one picture at a time and keeps what it has
seen: a value seen before needs no kernel, a drag over a slow picture never piles up
requests, and the last value asked for is the one that is drawn. On slides and on the
site the same module scrubs through frames that were drawn when the page was built.
"""

import base64
import html
import json
import os
from collections.abc import Sequence
from typing import Any

import anywidget
import traitlets
from IPython.display import display

from course_lib.notebook.controls import Control, Value, control, text
from course_lib.notebook.front_end import script, style
from course_lib.notebook.picture import SIZE, Canvas, Draw, Picture, widget_bundle
from course_lib.notebook.words import word

MAX_FRAMES = 40
MAX_PAGE_BYTES = 600_000
# JupyterLab's "model not found" under a still picture, which says what to do instead.
_NO_MODEL = (
    ".jp-OutputArea-child:has([data-course-still]) + .jp-OutputArea-child "
    "> .jupyter-widgets:not(:has(*)) { display: none; }"
)

Indices = tuple[float, ...]


class _ScrubView(anywidget.AnyWidget):
    _esm = script("scrub")
    _css = style("scrub")
    scrub = traitlets.Dict().tag(sync=True)
    # Quoted: Colab's traitlets 5.7 has no `List[...]` at run time.
    indices: "traitlets.List[float]" = traitlets.List().tag(sync=True)
    picture = traitlets.Bytes().tag(sync=True)
    still = traitlets.Unicode().tag(sync=True)


class Scrub:
    """A drawing whose values a reader moves; other cells can read them in `values`."""

    def __init__(self, draw: Draw, controls: list[Control], size: tuple[float, float]):
        self.controls = controls
        self._canvas = Canvas(draw, size)
        self._start: Indices = tuple(one.start for one in controls)
        self._view: _ScrubView | None = None
        self.alt = self._canvas.draw(self._at(self._start))
        self._png = self._canvas.small_png()

    @property
    def values(self) -> dict[str, Value]:
        """The values that the controls stand at now, by name."""
        return self._at(self._start if self._view is None else self._view.indices)

    def positions(self) -> list[dict[str, Value]]:
        """Every value of every control, the others at their start: a page's frames."""
        return [self._at(indices) for indices in _axes(self.controls)]

    def draw(self, **values: Value) -> str:
        """Draw at these values (the others at their start) and return the alt text."""
        return self._canvas.draw(self._at(self._start) | values)

    def bundles(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return what a notebook is given: MIME bundles, each with its metadata.

        Live, these are a still picture and the widget, which hides the picture as soon
        as it stands. Where no widget can stand, in a notebook opened later without a
        kernel or without trust, the picture is what remains.
        """
        if os.environ.get("COURSE_STATIC"):
            return [({"text/html": self.page_html(), "text/plain": self.alt}, {})]
        view = self._live()
        still = Picture(self._png, self.alt, self._canvas.css_size)
        data, metadata = still._repr_mimebundle_()
        data["text/html"] = _still_html(view.model_id, data["text/html"])
        return [(data, metadata), (widget_bundle(view.model_id), {})]

    def _ipython_display_(self) -> None:
        for data, metadata in self.bundles():
            display(data, metadata=metadata, raw=True)

    def __repr__(self) -> str:
        return self.alt

    def _at(self, indices: Sequence[float]) -> dict[str, Value]:
        pairs = zip(self.controls, indices, strict=True)
        return {one.name: one.value(index) for one, index in pairs}

    # Live: the front end asks, Python draws.

    def _live(self) -> _ScrubView:
        if self._view is None:
            self._view = _ScrubView(
                scrub=self._state(self.controls),
                indices=list(self._start),
                picture=self._png,
            )
            self._view.still = self._view.model_id
            self._view.on_msg(self._answer)
        return self._view

    def _state(self, controls: list[Control]) -> dict[str, Any]:
        states = [control.state() for control in controls]
        names = ", ".join(state["label"] for state in states)
        return {
            "controls": states,
            "alt": self.alt,
            "group": word("scrub.group", names=names),
            "size": self._canvas.css_size,
            "ground": self._canvas.style.theme.ground,
        }

    def _answer(self, view: _ScrubView, request: dict[str, Any], _: Any) -> None:
        indices = tuple(request["indices"])
        answer: dict[str, Any] = {"indices": list(indices)}
        try:
            self.alt = self._canvas.draw(self._at(indices))
            png = self._canvas.image(compress_level=1)
            view.send({**answer, "alt": self.alt}, [png])
        except Exception as error:  # whatever a draw function raises is told in words
            shown = (
                f"{key} = {text(value)}" for key, value in self._at(indices).items()
            )
            sentence = word(
                "scrub.failed",
                values=", ".join(shown),
                error=type(error).__name__,
                message=error,
            )
            view.send({**answer, "failed": sentence}, [])

    # On a page: frames drawn now, no kernel later.

    def page_html(self, max_frames: int = MAX_FRAMES) -> str:
        """Return self-contained HTML with at most `max_frames` frames.

        One control moves while the others stay at their start. `scrub.js` must be on
        the page, once, and `mountPage(document)` called; without, the picture stands.
        """
        controls = _thinned(self.controls, max_frames)
        canvas, frames = self._canvas, {}
        places = _axes(controls)
        for indices in places:
            pairs = zip(controls, indices, strict=True)
            alt = canvas.draw({one.name: one.value(index) for one, index in pairs})
            webp = base64.b64encode(canvas.image("webp", colours=64, lossless=True))
            frames[_key(indices)] = {
                "src": "data:image/webp;base64," + webp.decode("ascii"),
                "alt": alt,
            }
        first = frames[_key(places[0])]
        state = self._state(controls)
        state |= {"alt": first["alt"], "frames": frames}
        state["note"] = word("scrub.static") if len(controls) > 1 else ""
        # "</" would end the script element early.
        payload = json.dumps(state, ensure_ascii=False).replace("</", "<\\/")
        width, height = self._canvas.css_size
        page = (
            '<figure class="course-scrub">'
            f'<img src="{first["src"]}" alt="{html.escape(first["alt"], quote=True)}" '
            f'width="{width}" height="{height}">'
            f'<script type="application/json">{payload}</script></figure>'
        )
        if len(page) > MAX_PAGE_BYTES:
            raise ValueError(
                f"max_frames: {len(frames)} frames take {len(page):,} bytes; expected "
                f"at most {MAX_PAGE_BYTES:,}: draw less, or smaller, or fewer frames"
            )
        return page


def _still_html(model_id: str, image: str) -> str:
    note = html.escape(word("scrub.still"))
    return (
        f"<style>{_NO_MODEL}</style>"
        f'<div data-course-still="{model_id}">{image}<p><em>{note}</em></p></div>'
    )


def _key(indices: Indices) -> str:
    return ",".join(map(str, indices))


def _axes(controls: list[Control]) -> list[Indices]:
    """Return the start, then each control's other values with the rest at the start."""
    start = tuple(one.start for one in controls)
    axes = [start]
    for place, one in enumerate(controls):
        for index in one.indices():
            if index != one.start:
                axes.append((*start[:place], index, *start[place + 1 :]))
    return axes


def _thinned(controls: list[Control], max_frames: int) -> list[Control]:
    """Return controls with fewer values, so that all axes together fit the limit."""
    lengths = [len(one.values) for one in controls]
    while sum(lengths) - len(lengths) + 1 > max_frames:
        lengths[lengths.index(max(lengths))] -= 1
    return [_every(one, length) for one, length in zip(controls, lengths, strict=True)]


def _every(control: Control, count: int) -> Control:
    if count == len(control.values):
        return control
    last = len(control.values) - 1
    chosen = {round(i * last / (count - 1)) for i in range(count)}
    if control.start not in chosen:  # its nearest neighbour makes room
        chosen.remove(min(chosen, key=lambda index: abs(index - control.start)))
        chosen.add(int(control.start))
    indices = sorted(chosen)
    values = tuple(control.values[index] for index in indices)
    return Control(
        control.name, control.kind, values, indices.index(int(control.start))
    )


def scrub(draw: Draw, *, size: tuple[float, float] = SIZE, **controls: object) -> Scrub:
    """Show `draw(fig, **values)` with a control for each value.

    Args:
        draw: a draw function (see `course_lib.notebook.picture`): it draws on a cleared
            matplotlib figure and returns the alt text.
        size: width and height in inches.
        controls: for each value `(low, high, step, start)`, a list of numbers or of
            words, a bool or a number (see `course_lib.notebook.controls`).

    Returns:
        The scrub. As the last line of a cell it shows itself; `.values` reads the
        values that the reader has chosen.

    Raises:
        TypeError, ValueError: a specification that is no control, by its name.
    """
    if not controls:
        raise ValueError(
            "scrub: no control given; expected for example gamma=(0, 1, .1, 1)"
        )
    return Scrub(draw, [control(name, spec) for name, spec in controls.items()], size)
