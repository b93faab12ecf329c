"""Settings in layers: defaults, then files in their order, then flags."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, get_args, get_origin, get_type_hints

import yaml


@dataclass(frozen=True)
class Program:
    """A training program: what it does, and the configs that it reads."""

    run: Callable[..., None]
    """Called with one config for each group, by name."""
    groups: Mapping[str, type]
    """The dataclass of each group of settings."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Settings, by name, that start out otherwise than in the dataclass."""
    hidden: frozenset[str] = frozenset()
    """Settings that are not offered, since another one decides them."""
    open: Mapping[str, str] = field(default_factory=dict)
    """Settings that are None unless they are given, and what the program does then."""
    flat: bool = False
    """Settings are called `field`: there is one group."""

    @property
    def words(self) -> str:
        """The first line of what it says about itself."""
        return (inspect.getdoc(self.run) or "").split("\n")[0]

    def settings(self) -> list[tuple[str, Any, Any, str]]:
        """Name, type, default and meaning of each, in order."""
        found = []
        for group, config in self.groups.items():
            hints, words = get_type_hints(config), field_words(config)
            for one in dataclasses.fields(config):
                name = one.name if self.flat else f"{group}.{one.name}"
                hint, default = hints[one.name], one.default
                if name in self.open:
                    hint, default = hint | None, None
                    words[one.name] += f" None: {self.open[name]}"
                if one.default_factory is not dataclasses.MISSING:
                    default = one.default_factory()
                if name not in self.hidden:
                    found.append(
                        (
                            name,
                            hint,
                            self.defaults.get(name, default),
                            words.get(one.name, ""),
                        )
                    )
        return found

    def configs(self, values: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """The dataclasses, made of the settings as they were read."""
        if self.flat:
            ((group, config),) = self.groups.items()
            return {group: config(**values)}
        return {
            group: config(
                **{
                    name: value
                    for name, value in values.get(group, {}).items()
                    if value is not None or f"{group}.{name}" not in self.open
                }
            )
            for group, config in self.groups.items()
        }


def read_settings(
    programs: Mapping[str, Program], arguments: Sequence[str]
) -> tuple[str, dict[str, Any]]:
    """Which program is asked for, and its settings as nested plain values.

    Args:
        programs: by name.
        arguments: the command line, without the name of the command.

    Raises:
        SystemExit: after `--help` or `--print_config`, and with words about a setting
            that there is not, or a value that it cannot have.
    """
    try:
        from jsonargparse import ArgumentParser
    except ModuleNotFoundError:
        raise SystemExit(
            "The training programs read their settings with jsonargparse, which is "
            "not installed: python course.py train installs it, or, in the folder of "
            "the course, pip install -e '.[train]'"
        ) from None

    known: dict[str, list[str]] = {
        name: [setting[0] for setting in program.settings()]
        for name, program in programs.items()
    }

    class Parser(ArgumentParser):
        def error(self, message: str, *_: Any, **__: Any) -> NoReturn:
            asked = [one for one in arguments if one in known]
            names = known[asked[0]] if asked else list(known)
            hint = _nearest(str(message), names)
            print(f"error: {message}{hint}", file=sys.stderr)
            raise SystemExit(2)

    files = "a YAML file of settings; may be given several times, the last one rules"
    parser = Parser(prog="python -m course_lib.train", description=__doc__)
    subcommands = parser.add_subcommands(dest="program")
    for name, program in programs.items():
        own = Parser(description=inspect.getdoc(program.run))
        own.add_argument("--config", action="config", help=files)
        listed = name not in arguments  # and no more
        for setting, hint, default, words in () if listed else program.settings():
            if get_origin(hint) is tuple:  # one alone need not be put into brackets
                hint = hint | get_args(hint)[0]
            own.add_argument(f"--{setting}", type=hint, default=default, help=words)
        subcommands.add_subcommand(name, own, help=program.words)
    asked = next((one for one in arguments if one in programs), None)
    ordered = files_first(list(arguments))
    if asked is not None:
        try:
            ordered = read_files(ordered, asked, programs[asked])
        except ValueError as error:
            parser.error(str(error))
    read = parser.parse_args(ordered)
    values = read[read.program].as_dict()
    values.pop("config", None)
    for setting, hint, *_ in programs[read.program].settings():
        *groups, last = setting.split(".")
        place = functools.reduce(dict.__getitem__, groups, values)
        if get_origin(hint) is tuple and not isinstance(place[last], tuple):
            place[last] = (place[last],)
    return read.program, values


def files_first(arguments: list[str]) -> list[str]:
    """The same arguments with every `--config FILE` before all other flags.

    So that a flag rules over a file wherever it stands.
    """
    files: list[str] = []
    others: list[str] = []
    rest = iter(arguments)
    for one in rest:
        if one == "--config":
            files += [one, *([value] if (value := next(rest, None)) else [])]
        else:
            (files if one.startswith("--config=") else others).append(one)
    start = 1 if others and not others[0].startswith("-") else 0
    return others[:start] + files + others[start:]


def read_files(arguments: list[str], name: str, program: Program) -> list[str]:
    """The same arguments, with the content of files that a parser would not take.

    A file may set nothing, and it may be the `settings.json` of a run of the program.

    Args:
        arguments: with every `--config FILE` before all other flags.
        name: the program's.
        program: whose settings they are.

    Raises:
        ValueError: a file that holds no settings, or those of another program.
    """
    read: list[str] = []
    rest = iter(arguments)
    for one in rest:
        flag, equals, path = one.partition("=")
        if flag != "--config":
            read.append(one)
            continue
        path = path if equals else next(rest, "")
        held = _held(path)
        groups = () if program.flat else program.groups
        for place, some in [(path, held)] + [
            (f"{path}: {group}", held.get(group))
            for group in (groups if isinstance(held, dict) else ())
        ]:
            if not isinstance(some, dict | None):
                raise ValueError(f"{place} must hold settings by name, got {some!r}")
        made = (held or {}).get("program", name)
        if made != name:
            raise ValueError(f"{path} holds the settings of {made}, not of {name}")
        kept = {
            key: value
            for key, value in (held or {}).items()
            if key != "program" and not (key in groups and value is None)
        }
        read.append(f"--config={path if kept == held else yaml.safe_dump(kept)}")
    return read


def _held(path: str) -> Any:
    """What a file holds; an empty dict where the parser is to say what is amiss."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        # YAML has another word for an infinite number.
        return json.loads(text) if path.endswith(".json") else yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, yaml.YAMLError):
        return {}


def field_words(config: type) -> dict[str, str]:
    """The text below each field of a dataclass, on one line."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(config))).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for one, after in zip(tree.body, tree.body[1:], strict=False):
        if (
            isinstance(one, ast.AnnAssign)
            and isinstance(one.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            # argparse reads a percent sign as its own.
            words = " ".join(str(after.value.value).split()).replace("%", "%%")
            found[one.target.id] = words
    return found


_ALSO_CALLED = {
    "kl_coef": "beta",
    "init_kl_coef": "beta",
    "lr": "learning_rate",
    "epochs": "num_epochs",
    "num_train_epochs": "num_epochs",
    "ppo_epochs": "num_epochs",
    "cliprange": "clip_eps",
    "clip_range": "clip_eps",
    "gae_lambda": "lam",
    "lambda": "lam",
    "max_new_tokens": "length",
    "max_completion_length": "length",
    "num_generations": "group_size",
    "entropy_coef": "ent_coef",
    "mini_batch_size": "minibatch_size",
}
"""What other libraries call a setting."""


def _nearest(message: str, names: list[str]) -> str:
    """What may have been meant, where a message names a setting that there is not."""
    kinds = "unrecognized|does not accept|not expected|invalid choice"
    if not re.search(kinds, message, re.IGNORECASE):
        return ""
    for asked in re.findall(r"[\w-]+(?:\.\w+)*", message):
        if asked in names:
            continue
        # By the whole name, or by its last part, whatever group it was put into.
        last = {name.rpartition(".")[2]: name for name in reversed(names)}
        word = asked.lstrip("-").rpartition(".")[2]
        if (known := _ALSO_CALLED.get(word, "")) in last:
            return f"; did you mean {last[known]}?"
        near = difflib.get_close_matches(asked.lstrip("-"), names, 1, 0.75)
        part = difflib.get_close_matches(word, last, 1, 0.8)
        if near or part:
            return f"; did you mean {near[0] if near else last[part[0]]}?"
    return ""
