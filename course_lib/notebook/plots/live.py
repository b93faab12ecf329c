"""Training curves that grow while the training loop runs.

    curves = plots.live_curves("episode_return", "approx_kl")
    history = ppo(env, config, callback=curves)

The picture stands in one place and is drawn anew about twice a second. When the cell
ends it shows everything, on a fast machine and a slow one alike: what is stored with a
notebook does not depend on how often it was drawn on the way.
"""

import functools
import time
from collections.abc import Callable, Mapping
from typing import Any, Self

from course_lib.notebook.picture import Canvas, Picture
from course_lib.notebook.plots.curves import MAX_PANELS, training_curves
from course_lib.notebook.plots.lines import MAX_SERIES
from course_lib.notebook.plots.style import PANELS, WIDE, Size

Callback = Callable[[int, Mapping[str, float]], None]
"""What a training loop calls after an update: its number from 0, and its metrics."""

SECONDS_BETWEEN = 0.5
DRAWING_SHARE = 0.1  # of the loop's time; a slow picture is drawn less often


class LiveCurves:
    """A callback that draws; made by `live_curves`.

    Outside a notebook it draws nothing before `picture` is asked for.
    """

    def __init__(
        self,
        metrics: tuple[str, ...],
        x: str,
        size: Size,
        clock: Callable[[], float],
    ) -> None:
        self.metrics, self.x = metrics, x
        self.histories: dict[str, dict[str, list[float]]] = {}
        self._canvas = Canvas(training_curves, size)
        self._clock = clock
        self._due = -float("inf")
        self._handle: Any = None  # of the display that stands in the running cell
        self._shell: Any = None

    def __call__(self, update: int, metrics: Mapping[str, float]) -> None:
        """Take the metrics of one update of a run that has no name.

        Raises:
            ValueError: a metric is missing, or the horizontal axis does not grow.
        """
        self._take("", update, metrics)

    def series(self, name: str) -> Callback:
        """Return the callback of one run among several, such as "seed 0"."""
        if name not in self.histories and len(self.histories) == MAX_SERIES:
            raise ValueError(
                f"name: {name!r} is one too many; expected at most {MAX_SERIES} series"
            )
        return functools.partial(self._take, name)

    @property
    def picture(self) -> Picture:
        """Everything so far, as a picture with alt text."""
        alt = self._draw()
        return Picture(self._canvas.small_png(), alt, self._canvas.css_size)

    def close(self) -> None:
        """Show everything; the end of a cell, or of a `with` block, does it."""
        if self._handle is not None:
            self._handle.update(self.picture)
            self._shell.events.unregister("post_run_cell", self._cell_ended)
        self._handle = self._shell = None
        self._due = -float("inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self, name: str, update: int, metrics: Mapping[str, float]) -> None:
        given = {"update": update, **metrics}
        missing = [key for key in (self.x, *self.metrics) if key not in given]
        if missing:
            raise ValueError(
                f"metrics: no {missing[0]!r}; this loop reports {', '.join(given)}"
            )
        history = self.histories.setdefault(
            name, {key: [] for key in (self.x, *self.metrics)}
        )
        if history[self.x] and not history[self.x][-1] < given[self.x]:
            raise ValueError(
                f"{self.x}: {given[self.x]} after {history[self.x][-1]}; expected "
                "growing. Another run is another series: callback=curves.series(name)"
            )
        for key, values in history.items():
            values.append(float(given[key]))
        self._show_if_due()

    def _show_if_due(self) -> None:
        start = self._clock()
        shell = _notebook_shell()
        if start < self._due or shell is None:
            return
        alt = self._draw()
        # Hardly compressed: it is looked at for half a second.
        png = self._canvas.image(compress_level=1)
        picture = Picture(png, alt, self._canvas.css_size)
        if self._handle is None:
            self._open(shell, picture)
        else:
            self._handle.update(picture)
        end = self._clock()
        pause = (end - start) * (1 / DRAWING_SHARE - 1)
        self._due = max(start + SECONDS_BETWEEN, end + pause)

    def _open(self, shell: Any, picture: Picture) -> None:
        from IPython.display import display

        self._handle = display(picture, display_id=True)
        self._shell = shell
        shell.events.register("post_run_cell", self._cell_ended)

    def _cell_ended(self, _: object = None) -> None:
        self.close()

    def _draw(self) -> str:
        return self._canvas.draw(
            {"histories": self.histories, "metrics": self.metrics, "x": self.x}
        )


def _notebook_shell() -> Any:
    """Return IPython's shell where it has a front end that shows pictures, or None."""
    from IPython import get_ipython

    shell = get_ipython()
    return shell if getattr(shell, "kernel", None) is not None else None


def live_curves(
    *metrics: str,
    x: str = "update",
    size: Size | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> LiveCurves:
    """Return a callback that draws these metrics of a training loop while it runs.

    Several runs go into one picture with `callback=curves.series("seed 0")`.

    Args:
        metrics: keys that the loop reports, 1 to 6; each gets a panel. A loop reports
            NaN where it has no value yet.
        x: key of the horizontal axis: "update", or one that the loop reports.
        size: width and height in inches; by default what the panels need.
        clock: seconds, growing.

    Raises:
        ValueError: no metric, or too many.
    """
    if not 1 <= len(metrics) <= MAX_PANELS:
        raise ValueError(f"metrics: {metrics!r}; expected 1 to {MAX_PANELS} names")
    return LiveCurves(
        metrics, x, size or (WIDE if len(metrics) <= 3 else PANELS), clock
    )
