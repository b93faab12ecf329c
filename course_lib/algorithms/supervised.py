"""Learning from given data: epochs of shuffled minibatches, in a run that can go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from course_lib.algorithms.history import Callback, Record
from course_lib.algorithms.language_learner import LearnerConfig, ModelLearner
from course_lib.algorithms.progress import progress_bar


class FitConfig(LearnerConfig, Protocol):
    """What the config of everything that is fitted to data holds."""

    @property
    def anneal_learning_rate(self) -> bool: ...
    @property
    def num_epochs(self) -> int: ...
    @property
    def minibatch_size(self) -> int: ...


class Data(Protocol):
    """N examples, and any rows of them."""

    def __len__(self) -> int: ...
    def __getitem__(self, rows: Tensor) -> Self: ...


class SupervisedRun:
    """A fit as far as it has come: all that is needed to go on from there.

    Args:
        learner: what is fitted.
    """

    def __init__(self, learner: ModelLearner) -> None:
        self.learner = learner
        self.records: list[Record] = []
        """One for each epoch."""
        self.stopped = False
        """Set by a callback that has seen enough."""

    @property
    def done(self) -> int:
        """How many epochs were made."""
        return len(self.records)

    def state_dict(self) -> dict[str, Any]:
        """Tensors, numbers and names only, to be written to a file."""
        return {
            "learner": self.learner.state_dict(),
            "records": self.records,
            "stopped": self.stopped,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` said, in a run of the same config."""
        self.learner.load_state_dict(state["learner"])
        self.records = [dict(one) for one in state["records"]]
        self.stopped = state["stopped"]


def fit(
    run: SupervisedRun,
    data: Data,
    config: FitConfig,
    loss_fn: Callable[[Any], tuple[Tensor, dict[str, Tensor]]],
    *,
    callback: Callback | None = None,
    progress: bool | str = False,
    name: str = "fit",
) -> list[Record]:
    """Go through the data in a new order each epoch, a gradient step for each piece.

    Args:
        run: a new one, or one that is taken up again.
        data: all examples.
        config: epochs and minibatches.
        loss_fn: called as `loss_fn(some)` on a piece of the data; gives a loss and what
            to log.
        callback: is given the record of each epoch.
        progress: show a progress bar; a text is what it says.
        name: what it says.

    Returns:
        A record of means for each epoch: `loss`, `grad_norm` and what `loss_fn` logs.
    """
    learner = run.learner
    for _ in progress_bar(run.done, config.num_epochs, name, progress):
        if run.stopped:
            break
        if config.anneal_learning_rate:
            left = 1 - run.done / config.num_epochs
            learner.optimizer.learning_rate = left * config.learning_rate
        seen: list[dict[str, Tensor]] = []
        device = learner.generator.device
        order = torch.randperm(len(data), generator=learner.generator, device=device)
        for rows in order.split(config.minibatch_size):
            loss, numbers = loss_fn(data[rows])
            norm = learner.step(loss)
            seen.append(numbers | {"loss": loss.detach(), "grad_norm": norm})
        record = {"epoch": float(run.done)}
        for key in seen[0]:
            record[key] = float(torch.stack([one[key] for one in seen]).mean())
        run.records.append(record)
        if callback is not None:
            callback(run.done - 1, record)
    return run.records
