"""V-trace, against the paper's sums of products, and where it meets GAE."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.kernels import NaNInputError, gae, shift_values, vtrace
from tests.engines import ENGINES, LOOKING_FOR_NAN, examples
from tests.given_steps import SEEDS, SHARES, WEIGHTS, random_steps
from tests.reference_kernels import for_each_step, vtrace_pair

SHAPES = st.sampled_from([(1,), (2,), (9,), (3, 5), (2, 40), (2, 3, 4)])
CAPS = st.one_of(st.sampled_from([0.0, 1.0, math.inf]), st.floats(0, 3))


def draw_steps(seed, shape, share):
    """Rewards, values, next values, two log-probabilities, and two kinds of ends."""
    rewards, values, after, *ends = random_steps(seed, shape, share)
    log_probs = -random_steps(seed + 1, shape, share)[0].abs()
    behaviour_log_probs = -random_steps(seed + 2, shape, share)[0].abs()
    return rewards, values, after, log_probs, behaviour_log_probs, *ends


@settings(max_examples=examples(100), deadline=None)
@given(
    seed=SEEDS,
    shape=SHAPES,
    share=SHARES,
    gamma=WEIGHTS,
    lam=WEIGHTS,
    rho_max=CAPS,
    c_max=st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1.5)),
)
def test_it_is_the_papers_sum_for_any_ends_and_any_cut_offs(
    seed, shape, share, gamma, lam, rho_max, c_max
):
    *numbers, terminated, truncated = draw_steps(seed, shape, share)
    weights = {"gamma": gamma, "lam": lam, "rho_max": rho_max, "c_max": c_max}
    expected = [
        for_each_step(
            lambda *row, kind=kind, **rest: vtrace_pair(*row, **rest)[kind],
            torch.Size(shape), *numbers, terminated, truncated, **weights,
        )
        for kind in (0, 1)
    ]  # fmt: skip
    numbers[2][terminated] = math.nan  # behind a termination nothing is looked at
    for engine in ENGINES:
        result = vtrace(
            *numbers, terminated=terminated, truncated=truncated, engine=engine,
            validate=True, **weights,
        )  # fmt: skip
        for one, other in zip(result, expected, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_on_the_policys_own_steps_it_is_gae(engine, lam):
    rewards, values, last, log_probs, _, terminated, truncated = draw_steps(
        0, (3, 30), 0.1
    )
    after = shift_values(values, last[:, 0])
    options = {"terminated": terminated, "truncated": truncated, "gamma": 0.9}
    advantages, returns = vtrace(
        rewards, values, after, log_probs, log_probs, lam=lam, engine=engine, **options
    )
    one, target = gae(rewards, values, after, lam=lam, **options)
    torch.testing.assert_close(returns, target)
    if lam == 1.0:
        torch.testing.assert_close(advantages, one)
    else:  # r + gamma vs_{t+1} - V, with the lambda-return of the next step
        following = torch.where(truncated, after, shift_values(target, last[:, 0]))
        following[terminated] = 0.0
        expected = rewards + 0.9 * following - values
        torch.testing.assert_close(advantages, expected)


@pytest.mark.parametrize("engine", ENGINES)
class TestByHand:
    def test_two_steps(self, engine):
        # ratios 2 and 1/2; rho = 1, 1/2; c = 1, 1/2; deltas 1 and 3.
        advantages, returns = vtrace(
            torch.tensor([1.0, 4.0]), torch.tensor([2.0, 2.0]),
            torch.tensor([2.0, 2.0]), torch.tensor([0.5, 0.25]).log(),
            torch.tensor([0.25, 0.5]).log(), terminated=torch.tensor([False, False]),
            gamma=0.5, engine=engine,
        )  # fmt: skip
        # y_1 = .5 * (4 + 1 - 2) = 1.5; y_0 = (1 + 1 - 2) + .5 * 1.5 = .75
        torch.testing.assert_close(returns, torch.tensor([2.75, 3.5]))
        torch.testing.assert_close(advantages, torch.tensor([0.75, 1.5]))

    def test_a_huge_ratio_is_cut_off_and_an_impossible_action_weighs_nothing(
        self, engine
    ):
        ones = torch.ones(2)
        advantages, returns = vtrace(
            ones, ones, ones, torch.tensor([1000.0, -math.inf]), torch.zeros(2),
            terminated=torch.tensor([False, True]), gamma=1.0, engine=engine,
        )  # fmt: skip
        assert advantages.tolist() == [1.0, 0.0] and returns.tolist() == [2.0, 1.0]

    @pytest.mark.parametrize("terminated", [False, True])
    @pytest.mark.parametrize(("gamma", "lam"), [(0.9, 1.0), (0.9, 0.0), (0.0, 1.0)])
    def test_a_ratio_that_overflows_times_nothing_is_nothing(
        self, engine, terminated, gamma, lam
    ):
        """Uncut, it met no error, a gamma or lam of 0, or the end of its row."""
        errors = torch.tensor([0.0, 1.0, 0.0])
        nothing = torch.zeros(3)
        behaviour = torch.tensor([0.0, 0.0, -1000.0])
        for where in (behaviour, behaviour.flip(-1)):
            for x in vtrace(
                errors, nothing, nothing, nothing, where, gamma=gamma, lam=lam,
                terminated=torch.full((3,), terminated), rho_max=math.inf,
                c_max=math.inf, engine=engine,
            ):  # fmt: skip
                assert not x.isnan().any()
                assert x[1] == 1 and x[2] == 0

    def test_infinity_stays_in_its_own_episode(self, engine):
        steps = torch.ones((3, 8))
        steps[:, 4:] = math.inf
        for kind in ("terminated", "truncated"):
            ends = {"terminated": torch.zeros(8, dtype=torch.bool)}
            ends[kind] = torch.arange(8) == 3
            for x in vtrace(
                *steps, torch.zeros(8), torch.zeros(8), **ends, gamma=0.9,
                engine=engine,
            ):  # fmt: skip
                assert x[:4].isfinite().all() and not x[4:].isfinite().any()

    def test_dtypes_follow_the_house_and_nothing_changes_in_place(self, engine):
        rewards = torch.ones(600, dtype=torch.bfloat16)
        nothing = torch.zeros_like(rewards)
        for x in vtrace(
            rewards, nothing, nothing, nothing.float(), nothing.double(),
            terminated=nothing.bool(), gamma=1.0, engine=engine,
        ):  # fmt: skip
            assert x.dtype == torch.bfloat16 and x[0] == 600
        assert rewards.sum(dtype=torch.float32) == 600 and not nothing.any()
        empty = torch.ones((5, 2, 0), dtype=torch.long)
        for x in vtrace(*empty, terminated=empty[0].bool(), gamma=0.9, engine=engine):
            assert x.shape == (2, 0) and x.dtype == torch.float32

    def test_no_gradient_flows(self, engine):
        steps = torch.ones((5, 4), requires_grad=True)
        for x in vtrace(
            *steps, terminated=torch.zeros(4).bool(), gamma=0.9, engine=engine
        ):
            assert not x.requires_grad


ONES, NEVER, NAN = torch.ones(2, 3), torch.zeros(2, 3, dtype=torch.bool), math.nan


@pytest.mark.parametrize("how", LOOKING_FOR_NAN)
@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"rho_max": -1.0}, ValueError, "rho_max must be at least 0, got -1.0"),
        ({"c_max": NAN}, ValueError, "c_max must be at least 0, got nan"),
        ({"c_max": "1"}, TypeError, "c_max must be a number, got str"),
        ({"lam": 1.5}, ValueError, "lam must lie in"),
        ({"gamma": 1.5}, ValueError, "gamma must lie in"),
        ({"log_probs": ONES[0]}, ValueError, r"log_probs must have shape \[2, 3\]"),
        ({"behaviour_log_probs": None}, TypeError, "behaviour_log_probs must be a"),
        ({"truncated": ONES}, TypeError, "truncated must have dtype torch.bool"),
        ({"rewards": ONES * NAN}, NaNInputError, "rewards must not hold NaN"),
        ({"next_values": ONES * NAN}, NaNInputError, "next_values must not"),
        ({"log_probs": ONES * NAN}, NaNInputError, "log_probs must not hold NaN"),
        ({"behaviour_log_probs": ONES * NAN}, NaNInputError, "behaviour_log_probs mu"),
        (
            {"log_probs": -ONES / 0, "behaviour_log_probs": -ONES / 0},
            NaNInputError,
            "log_probs - behaviour_log_probs must not hold NaN",
        ),
    ],
)
def test_a_bad_argument_is_refused_by_name(how, changed, error, words):
    names = ("rewards", "values", "next_values", "log_probs", "behaviour_log_probs")
    arguments = dict.fromkeys(names, ONES) | {"terminated": NEVER, "gamma": 0.9}
    with pytest.raises(error, match=words):
        vtrace(**(arguments | changed), **how)
