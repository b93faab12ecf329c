"""GAE on small inputs with known results, most of them from faults in public code."""

import math

import pytest
import torch
from torch import Tensor

from course_lib.kernels import discounted_returns, gae, shift_values, td_errors
from tests.engines import DTYPE, ENGINES
from tests.given_steps import flags, numbers

INF, NAN = math.inf, math.nan


def assert_is(result: Tensor, *expected: float) -> None:
    torch.testing.assert_close(
        result,
        torch.tensor(expected, dtype=result.dtype),
        rtol=0,
        atol=1e-9 if result.dtype == torch.float64 else 1e-5,
    )


@pytest.mark.parametrize("engine", ENGINES)
class TestByHand:
    def test_the_five_step_episode(self, engine):
        values = numbers(4, 2, 2, 2, 8)
        advantages, returns = gae(
            numbers(0, 4, 6, -8, 16),
            values,
            shift_values(values, numbers(0.0)[0]),
            terminated=flags(0, 0, 0, 0, 1),
            gamma=0.5,
            lam=0.5,
            engine=engine,
        )
        assert_is(advantages, -2, 4, 4, -4, 8)
        assert_is(returns, 2, 6, 6, -2, 16)

    def test_its_td_errors_are_what_lam_zero_leaves(self, engine):
        steps = numbers(0, 4, 6, -8, 16), numbers(4, 2, 2, 2, 8), numbers(2, 2, 2, 8, 0)
        ended = flags(0, 0, 0, 0, 1)
        errors = td_errors(*steps, terminated=ended, gamma=0.5)
        assert_is(errors, -3, 3, 5, -6, 8)
        advantages, _ = gae(*steps, terminated=ended, gamma=0.5, lam=0.0, engine=engine)
        assert_is(advantages, -3, 3, 5, -6, 8)

    def test_lam_one_is_the_return_less_the_value(self, engine):
        """CLAIMS row 13; error 9: it still subtracts V, and bootstraps a cut row."""
        generator = torch.Generator().manual_seed(0)
        rewards, values = torch.randn((2, 3, 20), generator=generator).to(DTYPE)
        after = shift_values(values, torch.randn(3, generator=generator).to(DTYPE))
        ended = torch.zeros(3, 20, dtype=torch.bool)
        advantages, returns = gae(
            rewards, values, after, terminated=ended, gamma=0.9, lam=1.0, engine=engine
        )
        whole = discounted_returns(rewards, 0.9, next_values=after, engine=engine)
        torch.testing.assert_close(returns, whole)
        torch.testing.assert_close(advantages, whole - values)

    def test_a_response_cut_by_its_length_is_not_punished_for_it(self, engine):
        """CLAIMS error 11: V = .7, no reward, four tokens, lam .95, gamma 1."""
        values, nothing = torch.full((4,), 0.7).to(DTYPE), torch.zeros(4).to(DTYPE)
        last = flags(0, 0, 0, 1)
        options = {"gamma": 1.0, "lam": 0.95, "engine": engine}
        as_finished, _ = gae(nothing, values, values, terminated=last, **options)
        assert as_finished.min() > -0.7 - 1e-5 and as_finished.max() < -0.6 + 1e-3
        as_cut, _ = gae(
            nothing,
            values,
            values,
            terminated=flags(0, 0, 0, 0),
            truncated=last,
            **options,
        )
        assert_is(as_cut, 0, 0, 0, 0)


@pytest.mark.parametrize("engine", ENGINES)
class TestWhatPeopleGetWrong:
    """Numbers as in the threads; the comment gives what the fault would return."""

    def test_k03_truncated_is_not_terminated(self, engine):
        """Toni-SM/skrl #449; jsboige/CoursIA PR 7825; anthonytorlucci/rlevo #170."""
        advantages, _ = gae(
            numbers(1, 1, 1), numbers(5, 5, 5), numbers(5, 5, 6),
            terminated=flags(0, 0, 0), truncated=flags(0, 0, 1),
            gamma=0.9, lam=0.8, engine=engine,
        )  # fmt: skip
        assert_is(advantages, 1.58576, 1.508, 1.4)  # not [-1.2136, -2.38, -4]

    def test_k04_an_end_cuts_the_sum(self, engine):
        """Toni-SM/skrl #224; walkinglabs/hands-on-modern-rl #63."""
        steps = numbers(1, 10), numbers(5, 2), numbers(6, 2)
        options = {"gamma": 0.9, "lam": 0.8, "engine": engine}
        never, first = flags(0, 0), flags(1, 0)
        advantages, _ = gae(*steps, terminated=never, truncated=first, **options)
        assert_is(advantages, 1.4, 9.8)  # not [8.456, 9.8]
        advantages, _ = gae(*steps, terminated=first, **options)  # its sibling
        assert_is(advantages, -4, 9.8)

    def test_k07_the_bootstrap_is_the_value_of_the_state_reached(self, engine):
        """leggedrobotics/rsl_rl #151; DexForce/EmbodiChain PR 610."""
        advantages, _ = gae(
            numbers(1), numbers(5), numbers(6), terminated=flags(0),
            truncated=flags(1), gamma=0.9, lam=0.95, engine=engine,
        )  # fmt: skip
        assert_is(advantages, 1.4)  # not .5

    def test_k08_a_flag_belongs_to_the_step_that_ended(self, engine):
        """anthonytorlucci/rlevo #342; hill-a/stable-baselines #385;
        AechPro/rlgym-ppo PR 23."""
        advantages, _ = gae(
            numbers(1, 1, 1), numbers(1, 2, 3), numbers(2, 3, 4),
            terminated=flags(0, 1, 0), gamma=0.9, lam=0.8, engine=engine,
        )  # fmt: skip
        assert_is(advantages, 1.08, -1, 1.6)  # not [0, 2.852, 1.6]

    def test_k09_after_the_last_step_comes_the_state_after_it(self, engine):
        """DLR-RM/stable-baselines3 PR 185."""
        values = numbers(2, 3)
        advantages, _ = gae(
            numbers(1, 1), values, shift_values(values, numbers(10)[0]),
            terminated=flags(0, 0), gamma=0.9, lam=1.0, engine=engine,
        )  # fmt: skip
        assert_is(advantages, 8, 7)  # not [2.33, .7]

    def test_k10_the_step_before_an_end_keeps_the_ends_error(self, engine):
        """alessiodm/drl-zh #13."""
        advantages, _ = gae(
            numbers(1, 1), numbers(2, 3), numbers(3, 9),
            terminated=flags(0, 1), gamma=0.9, lam=0.8, engine=engine,
        )  # fmt: skip
        assert_is(advantages, 0.26, -2)  # not [1.7, -2]

    def test_k11_a_reward_stands_at_the_step_that_earned_it(self, engine):
        """openai/spinningup #50 and #138."""
        nothing = numbers(0, 0, 0)
        advantages, _ = gae(
            numbers(0, 0, 1), nothing, nothing, terminated=flags(0, 0, 1),
            gamma=0.9, lam=1.0, engine=engine,
        )  # fmt: skip
        assert_is(advantages, 0.81, 0.9, 1)  # not [0, 0, 0]

    def test_k12_targets_come_from_the_fresh_advantages(self, engine):
        """vwxyzjn/cleanrl PR 337."""
        advantages, returns = gae(
            numbers(4, 6), numbers(3, 4), numbers(0, 0), terminated=flags(1, 1),
            gamma=0.9, lam=0.8, engine=engine,
        )  # fmt: skip
        assert_is(advantages, 1, 2)
        assert_is(returns, 4, 6)  # not [3, 4]

    def test_k13_integers_keep_their_fractions(self, engine):
        """thu-ml/tianshou #85."""
        nothing = torch.zeros(3, dtype=torch.long)
        advantages, _ = gae(
            torch.tensor([1, 0, 2]), nothing, nothing,
            terminated=flags(0, 0, 1), gamma=0.5, lam=1.0, engine=engine,
        )  # fmt: skip
        assert_is(advantages, 1.5, 1, 2)  # not [1, 1, 2]
        assert advantages.dtype == torch.float32

    @pytest.mark.parametrize("junk", [40.0, INF, NAN])
    def test_k14_padding_is_no_next_value(self, engine, junk):
        """alibaba/ROLL PR 447; verl-project/verl PR 50."""
        advantages, returns = gae(
            numbers(0, 2, junk), numbers(0.5, 0.25, junk), numbers(0.25, junk, junk),
            terminated=flags(0, 1, 0), mask=flags(1, 1, 0),
            gamma=1.0, lam=0.5, engine=engine,
        )  # fmt: skip
        assert_is(advantages, 0.625, 1.75, 0)  # not [10.625, 21.75, 0]
        assert_is(returns, 1.125, 2, 0)

    def test_k19_a_response_that_ran_out_of_length_bootstraps(self, engine):
        """huggingface/trl PR 1536 and #6805; OpenRLHF/OpenRLHF #238."""
        for mask in (None, flags(1, 1)):
            advantages, _ = gae(
                numbers(0, 0), numbers(1, 2), numbers(2, 3), terminated=flags(0, 0),
                truncated=flags(0, 1), gamma=1.0, lam=1.0, mask=mask, engine=engine,
            )  # fmt: skip
            assert_is(advantages, 2, 1)  # not [-1, -2]

    def test_trap_1_all_the_ways_to_get_a_truncation_wrong(self, engine):
        """vwxyzjn/cleanrl #198 and #457; DLR-RM/stable-baselines3 #633."""
        advantages, _ = gae(
            numbers(1, 1, 1), numbers(10, 10, 2), numbers(10, 10, 2),
            terminated=flags(0, 0, 0), truncated=flags(0, 1, 0),
            gamma=0.9, lam=0.8, engine=engine,
        )  # fmt: skip
        # As terminated [-6.48, -9, .8]; with the reset state's value
        # [-5.184, -7.2, .8]; not cut [-4.769, -6.624, .8].
        assert_is(advantages, 0, 0, 0.8)

    def test_trap_2_ended_after_t_is_not_began_at_t(self, engine):
        nothing = torch.zeros(4).to(DTYPE)
        advantages, _ = gae(
            numbers(1, 1, 1, 1), nothing, nothing, terminated=flags(0, 1, 0, 0),
            gamma=0.9, lam=1.0, engine=engine,
        )  # fmt: skip
        assert_is(advantages, 1.9, 1, 1.9, 1)  # not [1, 2.71, 1.9, 1]

    def test_traps_3_and_4_time_is_last_and_the_last_step_counts(self, engine):
        nothing = torch.zeros(2, 3)
        advantages, _ = gae(
            torch.ones(2, 3), nothing, nothing, terminated=nothing.bool(),
            gamma=1.0, lam=1.0, engine=engine,
        )  # fmt: skip
        # With the batch taken for time [[2, 2, 2], [1, 1, 1]]; without the last
        # step's reward [2, 1, 0].
        assert advantages.tolist() == [[3, 2, 1], [3, 2, 1]]

    @pytest.mark.parametrize("junk", [9.0, INF, NAN])
    def test_trap_6_a_hole_is_stepped_over(self, engine, junk):
        """verl-project/verl PR 50; OpenRLHF's function reads the hole's value."""
        advantages, returns = gae(
            numbers(0, 0, junk, 1), numbers(0.5, 0.6, junk, 0.7),
            numbers(junk, junk, junk, junk), terminated=flags(0, 0, 1, 1),
            truncated=flags(0, 0, 1, 0), mask=flags(1, 1, 0, 1),
            gamma=1.0, lam=0.95, engine=engine,
        )  # fmt: skip
        assert_is(advantages, 0.46575, 0.385, 0, 0.3)
        assert_is(returns, 0.96575, 0.985, 0, 1)

    def test_trap_7_the_slot_after_the_end_lends_no_value(self, engine):
        """huggingface/trl #3750: there the pad's value of 5 gives [1.14, 1.2]."""
        advantages, _ = gae(
            numbers(0, 1, 0), numbers(0, 0, 5), numbers(0, 5, 5),
            terminated=flags(0, 1, 0), mask=flags(1, 1, 0),
            gamma=1.0, lam=0.95, engine=engine,
        )  # fmt: skip
        assert_is(advantages, 0.95, 1, 0)

    @pytest.mark.parametrize("junk", [INF, -INF])
    @pytest.mark.parametrize("rows", [1, 5])
    @pytest.mark.parametrize("kind", ["terminated", "truncated"])
    def test_trap_10_infinity_stays_in_its_own_episode(self, engine, junk, rows, kind):
        steps = torch.ones((3, rows, 40))
        steps[:, -1, 20:] = junk
        ends = {"terminated": torch.zeros(rows, 40, dtype=torch.bool)}
        clean = gae(
            *torch.ones((3, rows, 40)),
            **(ends | {kind: torch.arange(40).expand(rows, 40) == 19}),
            gamma=0.9, lam=0.8, engine=engine,
        )  # fmt: skip
        ends[kind] = torch.arange(40).expand(rows, 40) == 19
        dirty = gae(*steps, **ends, gamma=0.9, lam=0.8, engine=engine)
        for one, other in zip(clean, dirty, strict=True):
            assert torch.equal(one[:, :20], other[:, :20])
            assert torch.equal(one[:-1], other[:-1])
        assert not dirty[0][-1, 20:].isfinite().any()

    def test_a_cut_in_mid_row_uses_its_own_next_value_under_a_mask_too(self, engine):
        advantages, _ = gae(
            numbers(0, 0, 1), numbers(1, 2, 4), numbers(7, 3, 7),
            terminated=flags(0, 0, 1), truncated=flags(0, 1, 0),
            mask=flags(1, 1, 1), gamma=1.0, lam=0.5, engine=engine,
        )  # fmt: skip
        assert_is(advantages, 1.5, 1, -3)  # 1's successor: 3, not the reset state's 4

    def test_terminated_rules_where_both_are_set(self, engine):
        both = flags(0, 1, 0)
        advantages, _ = gae(
            numbers(1, 1, 1), numbers(2, 2, 2), numbers(2, 50, 2), terminated=both,
            truncated=both, gamma=1.0, lam=1.0, engine=engine,
        )  # fmt: skip
        assert_is(advantages, 0, -1, 1)

    def test_gamma_zero_and_lam_zero_look_at_nothing_later(self, engine):
        ended = flags(0, 0)
        advantages, _ = gae(
            numbers(1, 2), numbers(3, 5), numbers(INF, NAN), terminated=ended,
            gamma=0.0, lam=1.0, engine=engine, validate=True,
        )  # fmt: skip
        assert_is(advantages, -2, -3)
        advantages, _ = gae(
            numbers(1, INF), numbers(3, 5), numbers(4, 5), terminated=ended,
            gamma=1.0, lam=0.0, engine=engine,
        )  # fmt: skip
        assert advantages.tolist() == [2, INF]
