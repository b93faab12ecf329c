"""The pins: what the course pulls in, and nothing that merely lies beside it."""

from importlib import metadata

import pytest

from tools.constraints import pins_of


class Shelf:
    """Installed distributions by name: `name -> (version, requirements)`."""

    def __init__(self, **installed: tuple[str, list[str]]) -> None:
        self.installed = installed

    def __call__(self, name: str) -> metadata.Distribution:
        if name not in self.installed:
            raise metadata.PackageNotFoundError(name)
        version, requires = self.installed[name]

        class Found(metadata.Distribution):
            @property
            def version(self) -> str:
                return version

            @property
            def requires(self) -> list[str]:
                return requires

            def read_text(self, filename: str) -> None:
                return None

            def locate_file(self, path: object) -> None:
                return None

        return Found()


def test_pins_follow_requirements_and_leave_strangers_out():
    shelf = Shelf(
        torch=(
            "2.13.0+cpu",
            ["sympy>=1", "nvidia-cublas", 'triton; python_version>"3"'],
        ),
        sympy=("1.14.0", ["Mpmath"]),
        mpmath=("1.3.0", []),
        stranger=("9.9", []),
    )
    project = {"name": "ppo-course", "dependencies": ["torch>=2.8"]}
    assert pins_of(project, shelf) == [
        "mpmath==1.3.0",
        "sympy==1.14.0",
        "torch==2.13.0",
    ]


def test_extras_count_those_of_the_course_and_those_asked_of_others():
    shelf = Shelf(
        server=("1.0", ['extra-part; extra == "full"', 'unused; extra == "other"']),
        plain=("2.0", []),
        **{"extra-part": ("3.0", [])},
    )
    project = {
        "name": "ppo-course",
        "optional-dependencies": {
            "lab": ["plain"],
            "dev": ["ppo-course[lab]", "server", "server[full]"],
        },
    }
    assert pins_of(project, shelf) == ["extra-part==3.0", "plain==2.0", "server==1.0"]


def test_what_another_system_needs_stays_free():
    shelf = Shelf(terminal=("1.0", ['winpty; sys_platform == "nowhere"']))
    project = {"name": "ppo-course", "dependencies": ["terminal"]}
    assert pins_of(project, shelf) == ["terminal==1.0"]


def test_an_incomplete_environment_is_refused_with_what_is_missing():
    project = {"name": "x", "optional-dependencies": {"b": ["gone"], "a": ["lost"]}}
    with pytest.raises(ValueError, match=r"gone, lost not installed.*\.\[a,b\]"):
        pins_of(project, Shelf())
