"""Task: which samples are in each minibatch of each epoch."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from course_lib.notebook.checks.task import Case, Task

Shuffle = Callable[[int], Tensor]


def minibatch_indices(
    num_samples: int, minibatch_size: int, num_epochs: int, shuffle: Shuffle
) -> list[Tensor]:
    """Return the minibatches of all epochs, one after the other, as int64 indices.

    Each epoch has an order of its own, `shuffle(num_samples)`, which is cut from the
    front into pieces of `minibatch_size`; the last one may be shorter.
    """
    orders = [shuffle(num_samples) for _ in range(num_epochs)]
    return [piece for order in orders for piece in order.split(minibatch_size)]


class _Shuffle:
    """Gives a new order at each call; a copy gives the same ones."""

    def __init__(self, seed: int) -> None:
        self.seed, self.calls = seed, 0

    def __call__(self, count: int) -> Tensor:
        self.calls += 1
        generator = torch.Generator().manual_seed(100 * self.seed + self.calls)
        order = torch.randperm(count, generator=generator)
        # An order that has not changed anything would hide what was forgotten.
        return order.roll(1) if bool((order == torch.arange(count)).all()) else order


def _cases(seed: int) -> Sequence[Case]:
    sizes = [(4, 2, 1), (5, 2, 2), (6, 3, 2), (7, 3, 3), (3, 8, 2), (9, 4, 1)]
    return [
        _case(*numbers, seed=10 * seed + place) for place, numbers in enumerate(sizes)
    ]


def _case(num_samples: int, minibatch_size: int, num_epochs: int, *, seed: int) -> Case:
    shuffle = _Shuffle(seed)
    orders = ", then ".join(
        str(shuffle(num_samples).tolist()) for _ in range(num_epochs)
    )
    return Case(
        {
            "num_samples": num_samples,
            "minibatch_size": minibatch_size,
            "num_epochs": num_epochs,
            "shuffle": _Shuffle(seed),
        },
        f"num_samples = {num_samples}, minibatch_size = {minibatch_size}, num_epochs = "
        f"{num_epochs}; shuffle({num_samples}) gives {orders}",
    )


TASK = Task(
    "minibatch_indices", minibatch_indices, _cases, results=("the minibatches",)
)


@TASK.right
def yielded(n: int, size: int, epochs: int, shuffle: Shuffle) -> Iterator[Tensor]:
    for _ in range(epochs):
        order = shuffle(n)
        for start in range(0, n, size):
            yield order[start : start + size]


@TASK.right
def appended(n: int, size: int, epochs: int, shuffle: Shuffle) -> list[Tensor]:
    pieces = []
    for _ in range(epochs):
        order = shuffle(n)
        for start in range(0, n, size):
            pieces.append(order[start : start + size])
    return pieces


@TASK.right
def split(n: int, size: int, epochs: int, shuffle: Shuffle) -> list[Tensor]:
    pieces: list[Tensor] = []
    for _ in range(epochs):
        pieces += shuffle(n).split(size)
    return pieces


@TASK.wrong("not-shuffled", source="minibatches of consecutive steps")
def not_shuffled(n: int, size: int, epochs: int, shuffle: Shuffle) -> list[Tensor]:
    pieces = []
    for _ in range(epochs):
        order = torch.arange(n)
        for start in range(0, n, size):
            pieces.append(order[start : start + size])
    return pieces


@TASK.wrong("shuffled-once", source="the order drawn before the loop over epochs")
def shuffled_once(n: int, size: int, epochs: int, shuffle: Shuffle) -> list[Tensor]:
    orders = [shuffle(n)] * epochs
    return [piece for order in orders for piece in order.split(size)]


@TASK.wrong("shuffled-for-each-piece", source="the order drawn in the inner loop")
def shuffled_each(n: int, size: int, epochs: int, shuffle: Shuffle) -> list[Tensor]:
    pieces = []
    for _ in range(epochs):
        for start in range(0, n, size):
            order = shuffle(n)
            pieces.append(order[start : start + size])
    return pieces


@TASK.variant("shuffled-for-each-piece")
def drawn_anew(n: int, size: int, epochs: int, shuffle: Shuffle) -> list[Tensor]:
    pieces = []
    for _ in range(epochs):
        for _ in range(0, n, size):
            pieces.append(shuffle(n)[:size])
    return pieces


@TASK.variant("shuffled-for-each-piece")
def drawn_again(n: int, size: int, epochs: int, shuffle: Shuffle) -> list[Tensor]:
    pieces = []
    for _ in range(epochs):
        order = shuffle(n)
        for start in range(0, n, size):
            order = shuffle(n)
            pieces.append(order[start : start + size])
    return pieces


@TASK.wrong("last-dropped", source="a size that divides, taken for granted")
def last_dropped(n: int, size: int, epochs: int, shuffle: Shuffle) -> list[Tensor]:
    pieces = []
    for _ in range(epochs):
        order = shuffle(n)
        for start in range(0, n - size + 1, size):
            pieces.append(order[start : start + size])
    return pieces


@TASK.wrong("last-filled-up", source="the last piece moved back to have the full size")
def last_filled(n: int, size: int, epochs: int, shuffle: Shuffle) -> list[Tensor]:
    pieces = []
    for _ in range(epochs):
        order = shuffle(n)
        for start in range(0, n, size):
            pieces.append(order[max(0, min(start, n - size)) :][:size])
    return pieces


@TASK.variant("last-filled-up")
def wrapped(n: int, size: int, epochs: int, shuffle: Shuffle) -> list[Tensor]:
    pieces = []
    for _ in range(epochs):
        order = shuffle(n)
        for start in range(0, n, size):
            pieces.append(order[torch.arange(start, start + size) % n])
    return pieces


@TASK.wrong("one-epoch", source="return inside the loop, or the list made anew in it")
def one_epoch(n: int, size: int, epochs: int, shuffle: Shuffle) -> list[Tensor]:
    pieces = []
    for _ in range(epochs):
        order = shuffle(n)
        for start in range(0, n, size):
            pieces.append(order[start : start + size])
        return pieces
    return pieces


@TASK.variant("one-epoch")
def last_epoch(n: int, size: int, epochs: int, shuffle: Shuffle) -> list[Tensor]:
    for _ in range(epochs):
        pieces = []
        order = shuffle(n)
        for start in range(0, n, size):
            pieces.append(order[start : start + size])
    return pieces


@TASK.wrong("one-piece-an-epoch", source="return or yield of the first piece only")
def one_piece(n: int, size: int, epochs: int, shuffle: Shuffle) -> list[Tensor]:
    pieces: list[Tensor] = []
    for _ in range(epochs):
        pieces += shuffle(n).split(size)[:1]
    return pieces


@TASK.wrong("windows", source="range without a step: every sample in several pieces")
def windows(n: int, size: int, epochs: int, shuffle: Shuffle) -> list[Tensor]:
    pieces = []
    for _ in range(epochs):
        order = shuffle(n)
        for start in range(0, n):
            pieces.append(order[start : start + size])
    return pieces


@TASK.wrong("one-too-few", source="an end that is not included, taken for one that is")
def too_few(n: int, size: int, epochs: int, shuffle: Shuffle) -> list[Tensor]:
    pieces = []
    for _ in range(epochs):
        order = shuffle(n)
        for start in range(0, n, size):
            pieces.append(order[start : start + size - 1])
    return pieces


@TASK.wrong("one-too-many", source="+ 1 for an end that is included already")
def too_many(n: int, size: int, epochs: int, shuffle: Shuffle) -> list[Tensor]:
    pieces = []
    for _ in range(epochs):
        order = shuffle(n)
        for start in range(0, n, size):
            pieces.append(order[start : start + size + 1])
    return pieces


@TASK.wrong(
    "size-taken-for-number", source="baselines' nminibatches and minibatch_size"
)
def as_number(n: int, size: int, epochs: int, shuffle: Shuffle) -> list[Tensor]:
    size = -(-n // size)
    pieces = []
    for _ in range(epochs):
        order = shuffle(n)
        for start in range(0, n, size):
            pieces.append(order[start : start + size])
    return pieces


@TASK.wrong("places-for-samples", source="the order drawn and not used")
def places(n: int, size: int, epochs: int, shuffle: Shuffle) -> list[Tensor]:
    pieces = []
    for _ in range(epochs):
        order = shuffle(n)
        for start in range(0, n, size):
            pieces.append(order[start : start + size].sort().values)
    return pieces


@TASK.wrong("pieces-shuffled", source="consecutive steps in pieces of a random order")
def pieces_shuffled(n: int, size: int, epochs: int, shuffle: Shuffle) -> list[Tensor]:
    pieces: list[Tensor] = []
    for _ in range(epochs):
        parts = torch.arange(n).split(size)
        pieces += [parts[i] for i in shuffle(len(parts)).tolist()]
    return pieces


@TASK.wrong("epochs-run-together", source="all orders in one row, then cut")
def run_together(n: int, size: int, epochs: int, shuffle: Shuffle) -> list[Tensor]:
    orders = [shuffle(n) for _ in range(epochs)]
    return [piece for piece in torch.cat(orders).split(size)]


@TASK.wrong("loops-exchanged", source="every piece taken num_epochs times in a row")
def exchanged(n: int, size: int, epochs: int, shuffle: Shuffle) -> list[Tensor]:
    pieces = []
    order = shuffle(n)
    for start in range(0, n, size):
        for _ in range(epochs):
            pieces.append(order[start : start + size])
    return pieces


@TASK.wrong("whole-batch", source="one step an epoch: the size not used")
def whole_batch(n: int, size: int, epochs: int, shuffle: Shuffle) -> list[Tensor]:
    pieces: list[Tensor] = []
    for _ in range(epochs):
        pieces += [shuffle(n)]
    return pieces


@TASK.variant("loops-exchanged")
def exchanged_with_orders(
    n: int, size: int, epochs: int, shuffle: Shuffle
) -> list[Tensor]:
    orders = [shuffle(n) for _ in range(epochs)]
    starts = range(0, n, size)
    return [order[start : start + size] for start in starts for order in orders]


@TASK.wrong("first-piece-only", source="return within the inner loop")
def first_piece(n: int, size: int, epochs: int, shuffle: Shuffle) -> list[Tensor]:
    pieces = []
    for _ in range(epochs):
        order = shuffle(n)
        for start in range(0, n, size):
            pieces.append(order[start : start + size])
            return pieces
    return pieces


@TASK.wrong("end-for-length", source="a slice's second number taken for a length")
def end_for_length(n: int, size: int, epochs: int, shuffle: Shuffle) -> list[Tensor]:
    pieces = []
    for _ in range(epochs):
        order = shuffle(n)
        for start in range(0, n, size):
            pieces.append(order[start:size])
    return pieces


@TASK.wrong("order-of-an-order", source="the order of the epoch before shuffled again")
def shuffled_again(n: int, size: int, epochs: int, shuffle: Shuffle) -> list[Tensor]:
    pieces, order = [], torch.arange(n)
    for _ in range(epochs):
        order = order[shuffle(n)]
        for start in range(0, n, size):
            pieces.append(order[start : start + size])
    return pieces


@TASK.wrong("order-of-your-own", source="torch.randperm where an order is handed in")
def own_order(n: int, size: int, epochs: int, shuffle: Shuffle) -> list[Tensor]:
    pieces = []
    for _ in range(epochs):
        order = torch.randperm(n)
        for start in range(0, n, size):
            pieces.append(order[start : start + size])
    return pieces


@TASK.variant("order-of-your-own")
def own_order_once(n: int, size: int, epochs: int, shuffle: Shuffle) -> list[Tensor]:
    return [
        piece for order in [torch.randperm(n)] * epochs for piece in order.split(size)
    ]


@TASK.variant("order-of-your-own")
def own_order_of_theirs(
    n: int, size: int, epochs: int, shuffle: Shuffle
) -> list[Tensor]:
    orders = [shuffle(n)[torch.randperm(n)] for _ in range(epochs)]
    return [piece for order in orders for piece in order.split(size)]


@TASK.wrong("a-list-for-each-epoch", source="append for extend")
def nested(n: int, size: int, epochs: int, shuffle: Shuffle) -> list[list[Tensor]]:
    return [[*shuffle(n).split(size)] for _ in range(epochs)]
