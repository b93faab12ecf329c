"""What a check says, in HTML where that is shown and as plain text everywhere else."""

from dataclasses import dataclass
from html import escape
from typing import Any

from course_lib.notebook.words import maths, word

_GREEN, _ORANGE = "#17600f", "#c9780f"
_NUMBERS = "font-family: monospace; white-space: pre-wrap; padding: 0 0.8em 0 0"


@dataclass(frozen=True, repr=False)
class Report:
    """The outcome of a check; parts that do not apply are empty."""

    title: str
    words: str
    passed: bool = False
    inputs: str = ""
    """The smallest input where a fault shows."""
    got: str = ""
    expected: str = ""
    diagnosis: str = ""
    read: str = ""
    """The paragraph that explains the task."""
    wrong: str | None = None
    """The zoo's name for the mistake, if it has one."""

    @property
    def text(self) -> str:
        """The whole report as plain text."""
        head = word("check.passed" if self.passed else "check.failed", title=self.title)
        lines = [head, self.words]
        if self.inputs:
            lines.append(word("check.input", inputs=self.inputs))
        if self.got:
            lines.append(f"  {word('check.returned')}   {self.got}")
        if self.expected:
            lines.append(f"  {word('check.expected')}       {self.expected}")
        if self.diagnosis:
            lines.append(word("check.cause", diagnosis=self.diagnosis))
        if self.read:
            lines.append(word("check.read", read=self.read))
        return "\n".join(line for line in lines if line)

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": self.text}

    def html(self) -> str:
        """The whole report as one element, styled in place: it needs no style sheet."""
        colour = _GREEN if self.passed else _ORANGE
        line = "solid" if self.passed else "double"
        head = word("check.passed" if self.passed else "check.failed", title=self.title)
        parts = [f"<strong>{escape(head)}</strong> {escape(self.words)}"]
        if self.inputs:
            label, _, _ = word("check.input").partition(" {")
            parts.append(f"{escape(label)} <code>{escape(self.inputs)}</code>")
        rows = [
            f"<tr><td>{escape(name)}</td>"
            f'<td style="{_NUMBERS}; text-align: left">{escape(value)}</td></tr>'
            for name, value in (
                (word("check.returned"), self.got),
                (word("check.expected"), self.expected),
            )
            if value
        ]
        if rows:
            parts.append(f'<table style="margin: 0">{"".join(rows)}</table>')
        if self.diagnosis:
            label, _, _ = word("check.cause").partition(" {")
            cause = f"<strong>{escape(label)}</strong> {maths(self.diagnosis)}"
            parts.append(cause)
        if self.read:
            parts.append(escape(word("check.read", read=self.read)))
        style = f"border-left: 6px {line} {colour}; padding: 0.2em 1em; max-width: 46em"
        body = "".join(f'<div style="margin: 0.4em 0">{part}</div>' for part in parts)
        return f'<div class="course-check" role="status" style="{style}">{body}</div>'
