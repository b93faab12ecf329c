"""docs/NAMES.md has every name that a reader meets in a kernel, and no other."""

import inspect
import re
from pathlib import Path

import pytest
import torch

from course_lib import kernels

PAGE = Path(__file__).resolve().parent.parent / "docs" / "NAMES.md"
SECTIONS = dict(
    part.split("\n", 1) for part in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
)
KERNELS = {
    name: getattr(kernels, name)
    for name in kernels.__all__
    if inspect.isfunction(getattr(kernels, name))
}


def rows(section):
    """The cells of each row, the name first; the header and its line left out."""
    lines = [line for line in SECTIONS[section].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def names(section):
    return [re.fullmatch(r"`(\w+)`", row[0])[1] for row in rows(section)]


def test_every_argument_of_a_kernel_is_there_once():
    listed = names("Arguments") + names("Arguments that choose")
    asked = {name for f in KERNELS.values() for name in inspect.signature(f).parameters}
    assert len(listed) == len(set(listed)) and set(listed) == asked


def test_every_kernel_is_there_with_the_equation_that_it_names_first():
    assert sorted(names("Functions")) == sorted(KERNELS)
    for name, (_, equation, _) in zip(
        names("Functions"), rows("Functions"), strict=True
    ):
        first = re.search(r"\beq-[a-z0-9-]+", inspect.getdoc(KERNELS[name]))
        assert equation == first[0], name


def test_everything_that_a_loss_reports_is_there():
    x, mask = torch.tensor([-1.0, -2.0]), torch.tensor([True, True])
    told = [
        kernels.policy_gradient_loss(x, x),
        kernels.clipped_policy_loss(x, x, x, clip_eps=0.2),
        kernels.kl_penalty_policy_loss(x, x, x, x, beta=1.0),
        kernels.value_loss(x, x),
        kernels.clipped_value_loss(x, x, x, clip=0.2),
        kernels.entropy_bonus(-x),
        kernels.bradley_terry_loss(x, x),
        kernels.pretraining_loss(x.expand(2, 2), mask.long(), mask),
    ]
    losses = {name for name in KERNELS if name.endswith(("_loss", "_bonus"))}
    assert len(told) == len(losses)
    reported = {name for _, seen in told for name in seen}
    assert set(names("What the losses report")) == reported


@pytest.mark.parametrize("section", [s for s in SECTIONS if rows(s)])
def test_every_row_has_as_many_cells_as_its_header(section):
    lines = [line for line in SECTIONS[section].splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in lines}) == 1
    assert all(row[1] for row in rows(section))
