"""Sweeps, Monte Carlo and TD(0), against exact values and loops over episodes."""

import math
import statistics

import pytest
import torch

from course_lib.algorithms import (
    expected_backup,
    monte_carlo,
    monte_carlo_from_episodes,
    policy_evaluation,
    sweeps,
    td_update,
    td_zero,
)
from course_lib.envs import (
    Episodes,
    FiniteMDP,
    random_walk,
    sample_episodes,
    uniform_policy,
)
from course_lib.exact import state_values
from course_lib.kernels import discounted_returns

WALK = random_walk()
UNIFORM = uniform_policy(WALK)
SIXTHS = torch.tensor([0, 1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6, 0], dtype=torch.float64)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def by_hand(*rows: tuple[list[int], list[float]]) -> Episodes:
    """Episodes from (states, rewards) rows of any lengths."""
    longest = max(len(states) for states, _ in rows)
    states = torch.zeros(len(rows), longest, dtype=torch.long)
    rewards = torch.zeros(len(rows), longest, dtype=torch.float64)
    mask = torch.zeros(len(rows), longest, dtype=torch.bool)
    for i, (visited, paid) in enumerate(rows):
        states[i, : len(visited)] = torch.tensor(visited)
        rewards[i, : len(paid)] = torch.tensor(paid)
        mask[i, : len(visited)] = True
    empty = torch.zeros_like(states)
    last = mask & (mask.cumsum(-1) == mask.sum(-1, keepdim=True))
    return Episodes(states, empty, rewards, empty, mask, last, torch.zeros_like(mask))


def coin_loop() -> FiniteMDP:
    """A pays 1 a step and goes on like a coin: V(A) = 2."""
    transition = torch.tensor([[[0.5, 0.5]], [[0.0, 1.0]]])
    end = torch.tensor([False, True])
    return FiniteMDP(transition, torch.ones(2, 1, 2), end, torch.tensor([1.0, 0.0]))


class TestSweeps:
    def test_the_random_walk_comes_out_in_sixths(self):
        """CLAIMS row 4."""
        result = policy_evaluation(WALK, UNIFORM, gamma=1.0)
        torch.testing.assert_close(result.values, SIXTHS, rtol=0, atol=1e-8)
        assert result.converged and len(result.max_changes) == result.num_sweeps
        assert result.max_changes[-1] <= 1e-10 < result.max_changes[-2]
        solved = state_values(WALK, UNIFORM, 1.0)
        torch.testing.assert_close(result.values, solved, rtol=0, atol=1e-8)

    def test_the_first_sweeps_carry_the_reward_leftwards(self):
        history = sweeps(WALK, UNIFORM, 1.0, 3)
        expected = [
            [0, 0, 0, 0, 0, 0, 0],
            [0, 0, 0, 0, 0, 0.5, 0],
            [0, 0, 0, 0, 0.25, 0.5, 0],
            [0, 0, 0, 0.125, 0.25, 0.625, 0],
        ]
        assert history.tolist() == expected

    @pytest.mark.parametrize("gamma", [0.0, 0.5, 0.9])
    def test_a_sweep_shrinks_the_distance_to_the_exact_values_by_gamma(self, gamma):
        exact = state_values(WALK, UNIFORM, gamma)
        errors = (sweeps(WALK, UNIFORM, gamma, 20) - exact).abs().amax(-1)
        assert (errors[1:] <= gamma * errors[:-1] + 1e-12).all()

    def test_a_terminal_state_is_worth_nothing_whatever_is_passed(self):
        values = torch.full((7,), 9.0, dtype=torch.float64)
        before = values.clone()
        after = expected_backup(WALK, UNIFORM, values, 1.0)
        assert after.tolist() == [0, 4.5, 9, 9, 9, 5, 0]
        assert torch.equal(values, before)

    def test_a_learners_backup_runs_inside_and_may_work_in_place(self):
        def in_place(mdp, policy, values, gamma):
            for s in range(1, 6):
                left, right = values[s - 1], values[s + 1] + (s == 5)
                values[s] = policy[s, 0] * left + policy[s, 1] * right
            return values

        result = policy_evaluation(WALK, UNIFORM, gamma=1.0, backup_fn=in_place)
        torch.testing.assert_close(result.values, SIXTHS, rtol=0, atol=1e-8)
        synchronous = policy_evaluation(WALK, UNIFORM, gamma=1.0)
        assert result.num_sweeps < synchronous.num_sweeps

    def test_a_backup_of_another_shape_is_refused(self):
        with pytest.raises(ValueError, match="backup_fn's result must have shape"):
            sweeps(WALK, UNIFORM, 1.0, 1, backup_fn=lambda m, p, v, g: v[1:])
        with pytest.raises(TypeError, match="backup_fn's result must be a torch"):
            sweeps(WALK, UNIFORM, 1.0, 1, backup_fn=lambda m, p, v, g: None)

    def test_running_out_of_sweeps_is_said(self):
        result = policy_evaluation(WALK, UNIFORM, gamma=1.0, max_sweeps=5)
        assert not result.converged and result.num_sweeps == 5


class TestMonteCarlo:
    def test_l21_first_visit_and_every_visit_are_each_right(self):
        """ShangtongZhang/reinforcement-learning-an-introduction #122."""
        episode = by_hand(([0, 0, 1], [1.0, 2.0, 3.0]))
        every = monte_carlo_from_episodes(episode, 2, 1.0)
        first = monte_carlo_from_episodes(episode, 2, 1.0, first_visit=True)
        assert every.values.tolist() == [5.5, 3.0]
        assert first.values.tolist() == [6.0, 3.0]
        assert every.visits.tolist() == [2, 1]
        assert first.visits.tolist() == [1, 1]

    def test_what_cannot_be_said_is_nan(self):
        episodes = by_hand(([0, 0, 1], [1.0, 2.0, 3.0]), ([1], [1.0]))
        estimate = monte_carlo_from_episodes(episodes, 3, 1.0)
        assert estimate.values[2].isnan()  # never visited
        assert estimate.standard_errors.isnan().tolist() == [True, False, True]
        assert estimate.visit_wise_standard_errors[0].isfinite()
        one = monte_carlo_from_episodes(episodes.first(1), 3, 1.0)
        assert one.standard_errors.isnan().all()

    @pytest.mark.parametrize("first_visit", [False, True])
    @pytest.mark.parametrize("gamma", [0.0, 0.8, 1.0])
    def test_agrees_with_a_walk_through_the_episodes(self, first_visit, gamma):
        episodes = sample_episodes(WALK, UNIFORM, 60, generator=seeded(3))
        found: dict[int, list[float]] = {s: [] for s in range(7)}
        for i in range(60):
            n = int(episodes.mask[i].sum())
            states = episodes.states[i, :n].tolist()
            paid = episodes.rewards[i, :n].tolist()
            for t, s in enumerate(states):
                if not first_visit or s not in states[:t]:
                    rest = enumerate(paid[t:])
                    found[s].append(sum(gamma**k * r for k, r in rest))
        estimate = monte_carlo_from_episodes(
            episodes, 7, gamma, first_visit=first_visit
        )
        for s in range(1, 6):
            seen = found[s]
            assert estimate.visits[s] == len(seen)
            assert estimate.values[s].item() == pytest.approx(statistics.mean(seen))
            naive = statistics.stdev(seen) / math.sqrt(len(seen))
            assert estimate.visit_wise_standard_errors[s].item() == pytest.approx(naive)
            if first_visit and len(seen) == 60:
                # One visit in each episode: the episode-wise error is the usual one.
                assert estimate.standard_errors[s].item() == pytest.approx(naive)
        assert len(found[3]) >= 60

    @pytest.mark.parametrize("seed", range(5))
    def test_ten_thousand_episodes_come_within_a_fortieth(self, seed):
        """CLAIMS row 5: standard errors .0056 to .0067, max of 400 runs .0233."""
        estimate = monte_carlo(
            WALK, UNIFORM, num_episodes=10_000, gamma=1.0, generator=seeded(seed)
        )
        assert (estimate.values - SIXTHS).abs().max() < 0.025
        errors = estimate.standard_errors[1:-1]
        assert errors.min() > 0.005 and errors.max() < 0.0075
        expected_visits = torch.tensor([1.0, 2, 3, 2, 1]) * 10_000
        ratio = estimate.visits[1:-1] / expected_visits
        assert (ratio - 1).abs().max() < 0.04  # CLAIMS row 5b
        ends = [estimate.values, estimate.standard_errors]
        assert all(not x[[0, -1]].any() for x in ends)

    def test_the_episode_is_the_unit_of_the_standard_error(self):
        # 300 runs of 200 episodes: how far do the estimates really scatter?
        runs, size = 300, 200
        many = sample_episodes(WALK, UNIFORM, runs * size, generator=seeded(11))
        rows = [
            {name: x[k * size : (k + 1) * size] for name, x in vars(many).items()}
            for k in range(runs)
        ]
        estimates = [monte_carlo_from_episodes(Episodes(**r), 7, 1.0) for r in rows]

        def inside(name):
            return torch.stack([getattr(e, name)[1:-1] for e in estimates])

        values, errors = inside("values"), inside("standard_errors")
        scatter = values.std(0)
        honest = errors.mean(0) / scatter
        assert ((honest > 0.87) & (honest < 1.15)).all()  # 300 runs know sd to 4 %
        narrow = inside("visit_wise_standard_errors").mean(0) / scatter
        assert 0.4 < narrow[2] < 0.52  # C, visited three times an episode
        assert (narrow < 0.75).all()
        covered = ((values - SIXTHS[1:-1]).abs() < 1.96 * errors).double().mean()
        assert 0.92 < covered < 0.97

    def test_every_visit_is_biased_in_few_episodes_and_first_visit_is_not(self):
        # One episode with k visits: first-visit says k (mean 2), every-visit their
        # mean return (k + 1) / 2 (mean 1.5). Standard deviation of k: root 2.
        loop, n = coin_loop(), 4000
        many = sample_episodes(loop, uniform_policy(loop), n, generator=seeded(2))

        def mean_of_single_episodes(first_visit):
            says = [
                monte_carlo_from_episodes(
                    Episodes(**{f: x[i : i + 1] for f, x in vars(many).items()}),
                    2,
                    1.0,
                    first_visit=first_visit,
                ).values[0]
                for i in range(n)
            ]
            return torch.stack(says).mean().item()

        four_errors = 4 * 2**0.5 / n**0.5
        assert mean_of_single_episodes(True) == pytest.approx(2, abs=four_errors)
        assert mean_of_single_episodes(False) == pytest.approx(1.5, abs=four_errors / 2)
        together = monte_carlo_from_episodes(many, 2, 1.0).values[0].item()
        assert together == pytest.approx(2, abs=0.2)


def returns_row_by_row(rewards, gamma):
    """As a learner writes it for one row: len() is the number of steps."""
    returns = torch.zeros_like(rewards)
    running = 0.0
    for t in reversed(range(len(rewards))):
        running = rewards[t] + gamma * running
        returns[t] = running
    return returns


def returns_last_axis(rewards, gamma):
    returns = rewards.clone()
    for t in reversed(range(rewards.shape[-1] - 1)):
        returns[..., t] += gamma * returns[..., t + 1]
    return returns


def returns_floats_only(rewards, gamma):
    total, returns = 0.0, []
    for r in reversed([float(x) for x in rewards]):
        total = r + gamma * total
        returns.insert(0, total)
    return torch.tensor(returns, dtype=rewards.dtype)


def returns_eating_their_input(rewards, gamma):
    for t in reversed(range(rewards.shape[-1] - 1)):
        rewards[..., t] += gamma * rewards[..., t + 1]
    return rewards


class TestALearnersReturns:
    @pytest.mark.parametrize(
        "returns_fn",
        [
            returns_row_by_row,
            returns_last_axis,
            returns_floats_only,
            returns_eating_their_input,
        ],
    )
    @pytest.mark.parametrize("gamma", [0.0, 0.9, 1.0])
    def test_any_right_one_gives_the_librarys_values(self, returns_fn, gamma):
        episodes = sample_episodes(WALK, UNIFORM, 40, generator=seeded(6))
        before = episodes.rewards.clone()
        own = monte_carlo_from_episodes(episodes, 7, gamma, returns_fn=returns_fn)
        ours = monte_carlo_from_episodes(episodes, 7, gamma)
        torch.testing.assert_close(own.values, ours.values, equal_nan=True)
        assert torch.equal(episodes.rewards, before)

    def test_a_wrong_one_gives_its_own_wrong_values(self):
        estimate = monte_carlo(
            WALK,
            UNIFORM,
            num_episodes=300,
            gamma=1.0,
            generator=seeded(),
            returns_fn=lambda rewards, gamma: rewards,
        )
        assert estimate.values[1] == 0.0  # from A no single move is paid

    def test_one_that_returns_another_shape_is_refused(self):
        episodes = by_hand(([0, 1], [1.0, 2.0]))
        with pytest.raises(ValueError, match="returns_fn's result must have shape"):
            monte_carlo_from_episodes(
                episodes, 2, 1.0, returns_fn=lambda rewards, gamma: rewards.sum(-1)
            )

    def test_padding_is_zero_whatever_lies_there(self):
        episodes = by_hand(([0, 1], [1.0, 2.0]), ([0], [5.0]))
        episodes.rewards[1, 1] = math.inf
        estimate = monte_carlo_from_episodes(episodes, 2, 1.0)
        assert estimate.values.tolist() == [4.0, 2.0]


class TestTDZero:
    def test_the_first_episode_moves_one_outer_state_only(self):
        """Sutton and Barto (2018), exercise 6.3: from .5, by a tenth of the error."""
        start = torch.full((7,), 0.5)
        result = td_zero(
            WALK,
            UNIFORM,
            num_episodes=1,
            gamma=1.0,
            step_size=0.1,
            generator=seeded(4),
            initial_values=start,
        )
        assert result.history.shape == (2, 7)
        assert result.history[0].tolist() == [0, 0.5, 0.5, 0.5, 0.5, 0.5, 0]
        moved = (result.history[1] - result.history[0]).nonzero().flatten().tolist()
        assert moved in ([1], [5])
        expected = 0.45 if moved == [1] else 0.55
        assert result.values[moved[0]].item() == pytest.approx(expected)
        assert torch.equal(start, torch.full((7,), 0.5))

    def test_agrees_with_a_loop_over_the_same_episodes(self):
        arguments = {"num_episodes": 30, "gamma": 0.9}
        result = td_zero(WALK, UNIFORM, **arguments, step_size=0.2, generator=seeded(9))
        episodes = sample_episodes(WALK, UNIFORM, 30, generator=seeded(9))
        v = [0.0] * 7
        for i in range(30):
            for t in range(int(episodes.mask[i].sum())):
                s, s2 = episodes.states[i, t].item(), episodes.next_states[i, t].item()
                target = episodes.rewards[i, t].item() + 0.9 * v[s2]
                v[s] = 0.8 * v[s] + 0.2 * target
            assert result.history[i + 1].tolist() == pytest.approx(v)
        assert v[0] == v[6] == 0.0

    def test_small_steps_settle_around_the_exact_values(self):
        result = td_zero(
            WALK,
            UNIFORM,
            num_episodes=3000,
            gamma=1.0,
            step_size=0.02,
            generator=seeded(1),
        )
        settled = result.history[1000:].mean(0)
        assert (settled - SIXTHS).abs().max() < 0.04

    def test_a_learners_update_runs_inside(self):
        calls = []

        def spy(value, reward, next_value, gamma, step_size):
            calls.append((value, reward, next_value))
            return td_update(value, reward, next_value, gamma, step_size)

        arguments = {"num_episodes": 5, "gamma": 1.0, "step_size": 0.5}
        own = td_zero(WALK, UNIFORM, **arguments, generator=seeded(), update_fn=spy)
        ours = td_zero(WALK, UNIFORM, **arguments, generator=seeded())
        assert torch.equal(own.values, ours.values) and len(calls) >= 15

    def test_the_update_in_numbers(self):
        assert td_update(0.5, 1.0, 0.0, 0.9, 0.1) == pytest.approx(0.55)
        assert td_update(2.0, 1.0, 4.0, 0.5, 1.0) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: sweeps(WALK, UNIFORM, 1.5, 1), ValueError, "gamma must lie in"),
        (lambda: sweeps(WALK, UNIFORM, 1.0, 0), ValueError, "num_sweeps must be"),
        (
            lambda: expected_backup(WALK, UNIFORM, torch.zeros(6), 1.0),
            ValueError,
            r"values must have shape \[7\], got \[6\]",
        ),
        (
            lambda: expected_backup(WALK, UNIFORM[:, :1], torch.zeros(7), 1.0),
            ValueError,
            "policy must have shape",
        ),
        (
            lambda: td_zero(
                WALK,
                UNIFORM,
                num_episodes=1,
                gamma=1.0,
                step_size=2.0,
                generator=seeded(),
            ),
            ValueError,
            "step_size must lie in",
        ),
        (
            lambda: monte_carlo(
                WALK, UNIFORM, num_episodes=0, gamma=1.0, generator=seeded()
            ),
            ValueError,
            "num_episodes must be at least 1",
        ),
        (
            lambda: monte_carlo_from_episodes(by_hand(([0], [1.0])), 1, -1.0),
            ValueError,
            "gamma must lie in",
        ),
    ],
)
def test_a_bad_argument_is_refused_by_name(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_the_default_returns_are_the_kernel():
    episodes = by_hand(([0, 1], [1.0, 2.0]), ([1], [4.0]))
    default = monte_carlo_from_episodes(episodes, 2, 0.5)
    named = monte_carlo_from_episodes(episodes, 2, 0.5, returns_fn=discounted_returns)
    assert default.values.tolist() == named.values.tolist() == [2.0, 3.0]
