"""The page of conventions: our answers and the installed libraries', computed anew."""

import math

import pytest
import torch
from peer_libraries import Batch, StableBaselines3, Tianshou, TorchRL

from course_lib import kernels
from course_lib.kernels import (
    clipped_policy_loss,
    clipped_value_loss,
    group_relative_advantages,
    kl_estimates,
    kl_shaped_rewards,
    reduce_steps,
    whiten,
)
from tools import conventions

ROWS = conventions.rows()
T = torch.tensor
MODULES = {
    "Stable-Baselines3": "stable_baselines3",
    "tianshou": "tianshou",
    "torchrl": "torchrl",
}


def shown(value) -> str:
    """A number or nested lists of them as the page writes them."""
    if isinstance(value, torch.Tensor):
        value = value.tolist()
    if isinstance(value, list):
        return f"[{', '.join(shown(x) for x in value)}]"
    if math.isnan(value):
        return "NaN"
    if value != 0 and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.4e}"
    return f"{round(value, 4) + 0.0:g}"


def answers(row_id):
    """{(library, variant): what it returns} for the answers that are run."""
    return {
        (name, answer.get("id", "")): answer["returns"]
        for answer in ROWS[row_id]["answers"]
        if answer.get("run")
        for name in answer["by"]
    }


def gae(*args, **named):
    return kernels.gae(*args, **named)[0]


# What each row hands over.
CUT = {
    "rewards": T([1.0, 1.0, 1.0]),
    "values": T([10.0, 10.0, 2.0]),
    "next_values": T([10.0, 10.0, 2.0]),
    "done": T([False, True, False]),
    "gamma": 0.9,
    "lam": 0.8,
}
FLAGGED = {
    "rewards": torch.ones(4),
    "values": torch.zeros(4),
    "next_values": torch.zeros(4),
    "done": T([False, True, False, False]),
    "gamma": 0.9,
    "lam": 1.0,
}
OPEN = {
    "rewards": T([1.0, 1.0]),
    "values": T([2.0, 3.0]),
    "next_values": T([3.0, 10.0]),
    "done": T([False, False]),
    "gamma": 0.9,
    "lam": 1.0,
}
HOLE = T([True, True, False, True])
CLIPPED = Batch(T([1.5, 1.5, 0.5, 0.5, 1.0]).log(), T([1.0, -1.0, 1.0, -1.0, 1.0]))
NEGATIVE = Batch(T([10.0]).log(), T([-1.0]))
MOVED = Batch(T([0.5, -0.1]), torch.ones(2))
NEAR = Batch(T([1e-4]), torch.ones(1))
ONE = Batch(torch.zeros(1), T([3.0]), whiten=True)
THREE = Batch(torch.zeros(3), T([1.0, 2.0, 6.0]), whiten=True)
LOSSES = T([[1.0, 1.0, 1.0, 1.0], [4.0, 0.0, 0.0, 0.0]])
FLAT = Batch(torch.zeros(8), -LOSSES.flatten())


def value_batch(target):
    zero = torch.zeros(1)
    return Batch(zero, zero, T([0.5]), zero, T([target]), value_clip=0.2)


def our_clip(batch):
    old = torch.zeros_like(batch.log_ratio)
    return clipped_policy_loss(batch.log_ratio, old, batch.advantages, clip_eps=0.2)


def our_value(target):
    value = T([0.5]).requires_grad_()
    loss, _ = clipped_value_loss(value, T([0.0]), T([target]), clip=0.2)
    loss.backward()
    return f"{shown(loss)} and {shown(value.grad.item())}"


def our_hole(value):
    return gae(
        T([0.0, 0.0, 0.0, 1.0]),
        T([0.5, 0.6, value, 0.7]),
        torch.zeros(4),
        terminated=T([False, False, False, True]),
        gamma=1.0,
        lam=0.95,
        mask=HOLE,
    )


def our_score():
    mask = T([True, True, False])
    zero = torch.zeros(3)
    rewards = kl_shaped_rewards(zero, zero, T(1.0), beta=0.1, mask=mask)
    ended = T([False, True, False])
    return gae(
        rewards,
        T([0.0, 0.0, 5.0]),
        T([0.0, 5.0, 5.0]),
        terminated=ended,
        gamma=1.0,
        lam=0.95,
        mask=mask,
    )[:2]


def our_gae(given, terminated, truncated):
    return gae(
        given["rewards"],
        given["values"],
        given["next_values"],
        terminated=terminated,
        truncated=truncated,
        gamma=given["gamma"],
        lam=given["lam"],
    )


def our_reductions():
    mask = T([[True] * 4, [True, False, False, False]])
    values = [
        reduce_steps(LOSSES, mask, reduction, 4 if reduction == "constant" else None)
        for reduction in ("token_mean", "sequence_mean", "sequence_sum", "constant")
    ]
    *first, last = map(shown, values)
    return f"{', '.join(first)} or {last}"


NONE = torch.zeros(3, dtype=torch.bool)
OURS = {
    "ends-truncated": lambda: our_gae(CUT, NONE, CUT["done"]),
    "ends-flag": lambda: our_gae(FLAGGED, FLAGGED["done"], None),
    "ends-row": lambda: our_gae(OPEN, OPEN["done"], None),
    "ends-axis": lambda: gae(
        torch.ones(2, 3),
        torch.zeros(2, 3),
        torch.zeros(2, 3),
        terminated=torch.zeros(2, 3, dtype=torch.bool),
        gamma=1.0,
        lam=1.0,
    ),
    "mask-hole": lambda: our_hole(9.0),
    "mask-nan": lambda: our_hole(math.nan),
    "mask-score": our_score,
    "whiten-mask": lambda: whiten(T([1.0, 2.0, 3.0]), T([True, True, False])),
    "whiten-one": lambda: whiten(T([3.0])),
    "whiten-divisor": lambda: whiten(T([1.0, 2.0, 6.0])),
    "group-of-one": lambda: group_relative_advantages(
        T([1.0, 0.0, 2.0]), T([0, 0, 1]), eps=0.0
    ),
    "clip-fraction": lambda: " and ".join(
        shown(our_clip(CLIPPED)[1][name]) for name in ("clip_frac", "clip_frac_active")
    ),
    "clip-negative": lambda: our_clip(NEGATIVE)[0],
    "kl-small": lambda: kl_estimates(T([0.0]), T([1e-4]), "k3")[0],
    "kl-large": lambda: kl_estimates(T([-30.0]), T([0.0]), "k3")[0],
    "kl-stop": lambda: our_clip(MOVED)[1]["approx_kl"],
    "value-overshot": lambda: our_value(0.4),
    "value-wrong-way": lambda: our_value(-1.0),
    "reduction": our_reductions,
}


def whitened(library, batch):
    """What the advantages became, from the gradient at ratio 1: minus A over n."""
    return [-g * len(batch.advantages) for g in library.loss(batch).policy_grad]


def value_answer(library, target):
    answer = library.loss(value_batch(target))
    return f"{shown(answer.value_loss)} and {shown(answer.value_grad[0])}"


def sb3_gae(given, flags):
    """One row into the buffer, a final observation's value added to its reward."""
    return StableBaselines3.gae(
        given["rewards"][:, None],
        given["values"][:, None],
        given["next_values"][-1:],
        flags[:, None],
        given["gamma"],
        given["lam"],
    )[:, 0]


def sb3_cut():
    rewards = CUT["rewards"] + 0.9 * CUT["next_values"] * CUT["done"]
    begins = CUT["done"].roll(1)
    return sb3_gae(CUT | {"rewards": rewards}, begins)


def peer_gae(library, given, terminated):
    """tianshou and torchrl take two flags."""
    names = ("rewards", "values", "next_values", "done")
    return library.gae(
        *(given[name] for name in names), terminated, given["gamma"], given["lam"]
    )


ROW_OF_ONES = torch.ones(2, 3)
NO_DONE = torch.zeros(2, 3, dtype=torch.bool)
SB3, SHOU, RL = "Stable-Baselines3", "tianshou", "torchrl"
PEERS = {
    ("ends-truncated", SB3, ""): sb3_cut,
    ("ends-truncated", SHOU, ""): lambda: peer_gae(Tianshou, CUT, NONE),
    ("ends-truncated", RL, ""): lambda: peer_gae(TorchRL, CUT, NONE),
    ("ends-truncated", RL, "done-alone"): lambda: peer_gae(TorchRL, CUT, None),
    ("ends-flag", SB3, ""): lambda: sb3_gae(FLAGGED, FLAGGED["done"]),
    ("ends-flag", SHOU, ""): lambda: peer_gae(Tianshou, FLAGGED, FLAGGED["done"]),
    ("ends-flag", RL, ""): lambda: peer_gae(TorchRL, FLAGGED, FLAGGED["done"]),
    ("ends-row", SB3, ""): lambda: sb3_gae(OPEN, OPEN["done"]),
    ("ends-row", SHOU, ""): lambda: peer_gae(Tianshou, OPEN, OPEN["done"]),
    ("ends-row", RL, ""): lambda: peer_gae(TorchRL, OPEN, OPEN["done"]),
    ("ends-axis", SB3, ""): lambda: StableBaselines3.gae(
        ROW_OF_ONES, 0 * ROW_OF_ONES, torch.zeros(3), NO_DONE, 1.0, 1.0
    ),
    ("ends-axis", RL, ""): lambda: TorchRL.gae(
        ROW_OF_ONES,
        0 * ROW_OF_ONES,
        0 * ROW_OF_ONES,
        NO_DONE,
        NO_DONE,
        1.0,
        1.0,
        feature=False,
    ),
    ("whiten-one", SB3, ""): lambda: whitened(StableBaselines3, ONE),
    ("whiten-one", SHOU, ""): lambda: whitened(Tianshou, ONE),
    ("whiten-one", RL, ""): lambda: whitened(TorchRL, ONE),
    ("whiten-divisor", SB3, ""): lambda: whitened(StableBaselines3, THREE),
    ("whiten-divisor", SHOU, ""): lambda: whitened(Tianshou, THREE),
    ("whiten-divisor", RL, ""): lambda: whitened(TorchRL, THREE),
    ("clip-fraction", SB3, ""): lambda: StableBaselines3.loss(CLIPPED).clip_fraction,
    ("clip-fraction", RL, ""): lambda: TorchRL.loss(CLIPPED).clip_fraction,
    ("clip-negative", SB3, ""): lambda: StableBaselines3.loss(NEGATIVE).policy_loss,
    ("clip-negative", SHOU, ""): lambda: Tianshou.loss(NEGATIVE).policy_loss,
    ("clip-negative", RL, ""): lambda: TorchRL.loss(NEGATIVE).policy_loss,
    ("kl-small", SB3, ""): lambda: StableBaselines3.loss(NEAR).approx_kl,
    ("kl-stop", SB3, ""): lambda: StableBaselines3.loss(MOVED).approx_kl,
    ("kl-stop", RL, ""): lambda: TorchRL.loss(MOVED).approx_kl,
    ("value-overshot", SB3, ""): lambda: value_answer(StableBaselines3, 0.4),
    ("value-overshot", SHOU, ""): lambda: value_answer(Tianshou, 0.4),
    ("value-overshot", RL, ""): lambda: value_answer(TorchRL, 0.4),
    ("value-wrong-way", SB3, ""): lambda: value_answer(StableBaselines3, -1.0),
    ("value-wrong-way", SHOU, ""): lambda: value_answer(Tianshou, -1.0),
    ("value-wrong-way", RL, ""): lambda: value_answer(TorchRL, -1.0),
    ("reduction", SB3, ""): lambda: StableBaselines3.loss(FLAT).policy_loss,
    ("reduction", SHOU, ""): lambda: Tianshou.loss(FLAT).policy_loss,
    ("reduction", RL, ""): lambda: TorchRL.loss(FLAT).policy_loss,
}


def written(result) -> str:
    return result if isinstance(result, str) else shown(result)


@pytest.mark.parametrize("row_id", ROWS)
def test_our_answer_is_what_the_kernels_return(row_id):
    assert written(OURS[row_id]()) == answers(row_id)["this course", ""]


@pytest.mark.parametrize(("row_id", "library", "variant"), PEERS)
def test_a_librarys_answer_is_what_it_returns(row_id, library, variant):
    pytest.importorskip(MODULES[library], reason=f"{library} is not installed")
    result = PEERS[row_id, library, variant]()
    assert written(result) == answers(row_id)[library, variant]


def test_every_answer_said_to_be_run_is_run_here():
    said = {(row_id, *key) for row_id in ROWS for key in answers(row_id)}
    ours = {(row_id, "this course", "") for row_id in OURS}
    assert said == ours | PEERS.keys()


def test_no_library_answers_twice_and_none_is_unknown():
    known = conventions.load()["libraries"].keys()
    for row in ROWS.values():
        names = [
            (name, answer.get("id", ""))
            for answer in row["answers"]
            for name in answer["by"]
        ]
        assert len(names) == len(set(names))
        assert {name for name, _ in names} <= known


def test_the_page_is_the_one_that_the_rows_make():
    assert conventions.PAGE.read_text(encoding="utf-8") == conventions.page()
