"""What a task is made of: signature, reference, inputs, and the zoo of mistakes."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from course_lib.notebook.words import read_yaml

Function = Callable[..., Any]
_F = TypeVar("_F", bound=Function)


@dataclass(frozen=True)
class Case:
    """One input: arguments by name, in the order of the signature.

    `shown` replaces how the arguments read in a message, where a plain listing would
    not tell a reader what the input is.
    """

    arguments: dict[str, Any]
    shown: str = ""
    adversarial: bool = False
    """Holds a trap beside the ordinary difficulty of the task."""


@dataclass(frozen=True)
class Wrong:
    """A wrong answer that people really give, and where it was seen."""

    name: str
    function: Function
    source: str
    variants: tuple[Function, ...] = ()
    """Other ways to make the mistake, which give other numbers."""

    @property
    def functions(self) -> tuple[Function, ...]:
        """All ways to make the mistake."""
        return (self.function, *self.variants)


@dataclass
class Task:
    """One exercise: what is right, and which mistakes are known.

    Args:
        name: the id that `check` is called with.
        reference: the library's own function, or one that is written out here.
        cases: from a seed to inputs, the smallest first; ordinary, edge, adversarial.
        results: names of what is returned, in order; one name for a single tensor.
        tolerance: largest difference that counts as equal, relative to the largest
            expected magnitude (and to 1).
        gradients: names of arguments whose gradient is compared too: that of the sum
            of the first result.
        any_float: the text leaves the floating dtype of the result open.
    """

    name: str
    reference: Function
    cases: Callable[[int], Sequence[Case]]
    results: tuple[str, ...]
    tolerance: float = 1e-9
    gradients: tuple[str, ...] = ()
    any_float: bool = False
    wrongs: dict[str, Wrong] = field(default_factory=dict)
    rights: dict[str, Function] = field(default_factory=dict)

    def wrong(self, name: str, *, source: str) -> Callable[[_F], _F]:
        """Register a wrong answer; its diagnosis has the same name in the YAML."""

        def register(function: _F) -> _F:
            self.wrongs[name] = Wrong(name, function, source)
            return function

        return register

    def variant(self, name: str) -> Callable[[_F], _F]:
        """Register another way to make the mistake called `name`: one diagnosis, other
        numbers. Raises `KeyError` where no wrong answer has that name yet."""

        def register(function: _F) -> _F:
            wrong = self.wrongs[name]
            ways: tuple[Function, ...] = (*wrong.variants, function)
            self.wrongs[name] = replace(wrong, variants=ways)
            return function

        return register

    def right(self, function: _F) -> _F:
        """Register a right answer that is written differently."""
        self.rights[function.__name__] = function
        return function

    @property
    def title(self) -> str:
        return str(self._texts["title"])

    @property
    def read(self) -> str:
        """The paragraph that explains the task."""
        return str(self._texts["read"])

    def diagnosis(self, name: str) -> str:
        """Return the sentence for the wrong answer called `name`."""
        return " ".join(str(self._texts["wrong"][name]).split())

    @property
    def _texts(self) -> dict[str, Any]:
        texts: dict[str, Any] = _diagnoses()[self.name]
        return texts


@functools.cache
def _diagnoses() -> dict[str, Any]:
    texts: dict[str, Any] = read_yaml(__package__, "diagnoses.yaml")
    return texts
