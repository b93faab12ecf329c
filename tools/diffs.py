"""docs/DIFFS.md: what has to change to get from one algorithm to the next.

    python -m tools.diffs

The functions of two neighbours' files are laid side by side, one statement to a line,
without docstrings, comments, imports and annotations. tests/test_diffs.py holds the
page to the files, and each difference to `LIMIT`.
"""

from __future__ import annotations

import ast
import difflib
from dataclasses import dataclass
from pathlib import Path

from tools.files import write_text

ROOT = Path(__file__).resolve().parents[1]
ALGORITHMS = ROOT / "course_lib" / "algorithms"
PAGE = ROOT / "docs" / "DIFFS.md"
LIMIT = 60
"""A difference has fewer lines that are added or removed than this."""

INTRO = f"""\
# One algorithm from the next

Written by `python -m tools.diffs`; not edited by hand.

Every algorithm of the course goes through the same steps, *collect → estimate
advantages → update → log*, with the same names in the same order. So what is new in
each can be read from a diff.

How lines are counted: all functions of an algorithm's file, one statement to a line,
without docstrings, comments, imports, annotations and blank lines, so that neither
words nor line breaks count. The fields of the configs are left out; their docstrings
say what they are for. A line that is added counts one, a line that is removed one, and
no diff below has {LIMIT} of them. What two algorithms share is imported by both and
appears in neither: `collect_steps` and `collect_episodes` (`rollout.py`), `make_batch`
and `minibatches` (`batch.py`), the learner's gradient step and the fit of a baseline
(`learner.py`), what follows the KL (`kl_control.py`), and the kernels.
"""

BASELINE = """\
## REINFORCE → REINFORCE with a baseline

This is one word of the config, and {count} lines of `reinforce.py` run that did not:

```diff
-reinforce(env, ReinforceConfig(baseline="none"))
+reinforce(env, ReinforceConfig(baseline="value"))
```

```python
{lines}
```

The prediction that is subtracted is made by `estimate_advantages`, before `update`
moves the critic.
"""


@dataclass(frozen=True)
class Step:
    """Two neighbours, and what the reader should look for between them."""

    before: str
    after: str
    files: tuple[str, str]
    words: str


STEPS = (
    Step(
        "REINFORCE",
        "actor-critic",
        ("reinforce.py", "actor_critic.py"),
        """\
The critic no longer only steadies a return, it replaces its tail. So nobody has to wait
for the end of an episode: `collect_steps` takes some steps wherever the environments
stand, and `gae` asks the critic what would have come after. With whole episodes go
their padding and its `mask`; the mean over steps takes the place of the sum over an
episode.""",
    ),
    Step(
        "actor-critic",
        "PPO",
        ("actor_critic.py", "ppo.py"),
        """\
A rollout is used for several epochs of minibatches in place of one gradient step, so
that the policy that sampled is soon an old one: the batch keeps its log-probabilities,
the loss divides by them, and the clip takes away the reason to go further. The rest are
details with a name in the config. The steps are arguments, so that another one can be
put in.""",
    ),
)


def page() -> str:
    """The whole page, as Markdown."""
    parts = [INTRO, baseline()]
    for step in STEPS:
        lines = difference(*(functions(source(name)) for name in step.files))
        parts.append(
            f"## {step.before} → {step.after}\n\n{step.words}\n\n"
            f"{changed(lines)} lines: {changed(lines, '-')} removed, "
            f"{changed(lines, '+')} added.\n\n"
            "```diff\n" + "\n".join(lines) + "\n```\n"
        )
    return "\n".join(parts)


def baseline() -> str:
    """The part on what is one algorithm with two configs."""
    asked = "config.baseline == 'value'"
    blocks = [
        ast.unparse(node)
        for node in ast.walk(bare(ast.parse(source("reinforce.py"))))
        if isinstance(node, ast.If) and ast.unparse(node.test) == asked
    ]
    lines = "\n".join(blocks)
    return BASELINE.format(lines=lines, count=lines.count("\n") + 1 - len(blocks))


def source(name: str) -> str:
    """One algorithm's file."""
    return (ALGORITHMS / name).read_text(encoding="utf-8")


def functions(text: str) -> list[str]:
    """All functions of a module, one statement to a line, and nothing but code."""
    found = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    lines = "\n".join(ast.unparse(bare(node)) for node in found).splitlines()
    return [line for line in lines if line.strip()]


def difference(before: list[str], after: list[str]) -> list[str]:
    """A unified diff without the names of files."""
    return list(difflib.unified_diff(before, after, lineterm="", n=3))[2:]


def changed(lines: list[str], signs: str = "+-") -> int:
    """How many lines of a diff are added or removed."""
    return sum(line[0] in signs for line in lines)


def bare(node: ast.AST) -> ast.AST:
    """Without docstrings and annotations, of which nothing that runs depends."""
    return ast.fix_missing_locations(_Bare().visit(node))


class _Bare(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        if isinstance(node.value, ast.Constant):
            return None
        self.generic_visit(node)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        node.returns = None
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return None
        return ast.Assign([node.target], node.value)


def main() -> None:
    """Write the page."""
    write_text(PAGE, page())
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
