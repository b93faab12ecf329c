"""Finite MDPs, their episodes and the linear solves, against counts and loops."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.envs import (
    FiniteMDP,
    random_walk,
    require_policy,
    sample_episodes,
    uniform_policy,
)
from course_lib.exact import action_values, advantages, state_values, visitation


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_mdp(states: int, actions: int, seed: int) -> FiniteMDP:
    """A dense MDP whose last state is terminal, which every move reaches with > 0."""
    draw = {"generator": seeded(seed), "dtype": torch.float64}
    transition = torch.rand((states, actions, states), **draw) + 0.05
    start = torch.rand(states, **draw)
    terminal = torch.zeros(states, dtype=torch.bool)
    terminal[-1] = True
    start[-1] = 0.0
    return FiniteMDP(
        transition / transition.sum(-1, keepdim=True),
        torch.randn((states, actions, states), **draw),
        terminal,
        start / start.sum(),
    )


def random_policy(mdp: FiniteMDP, seed: int) -> torch.Tensor:
    weights = torch.rand(mdp.num_states, mdp.num_actions, generator=seeded(seed))
    return weights.double() / weights.double().sum(-1, keepdim=True)


def two_states(self_loop: float = 0.0) -> FiniteMDP:
    """A moves to B (terminal) for a reward of 1, or stays with `self_loop` for 0."""
    transition = torch.tensor([[[self_loop, 1 - self_loop]], [[0.0, 1.0]]])
    rewards = torch.zeros(2, 1, 2)
    rewards[0, 0, 1] = 1.0
    rewards[1, 0, 1] = 1.0  # what the terminal state's own rows say must not matter
    return FiniteMDP(
        transition.double(),
        rewards,
        torch.tensor([False, True]),
        torch.tensor([1.0, 0.0]),
        ("A", "B"),
        ("go",),
    )


def values_by_looking_ahead(mdp, policy, gamma, horizon):
    """Expected return of `horizon` steps, in plain floats: V_0 = 0, then backwards."""
    P, r, pi = mdp.transition.tolist(), mdp.rewards.tolist(), policy.tolist()
    inner = [s for s in range(mdp.num_states) if not mdp.terminal[s]]
    v = [0.0] * mdp.num_states
    for _ in range(horizon):
        new = [0.0] * mdp.num_states
        for s in inner:
            for a in range(mdp.num_actions):
                for t in range(mdp.num_states):
                    new[s] += pi[s][a] * P[s][a][t] * (r[s][a][t] + gamma * v[t])
        v = new
    return torch.tensor(v, dtype=torch.float64)


class TestRandomWalk:
    def test_values_are_sixths(self):
        """CLAIMS row 4, and example 6.2 of Sutton and Barto."""
        sixths = [float(Fraction(k, 6)) for k in range(1, 6)]
        expected = torch.tensor([0.0, *sixths, 0.0], dtype=torch.float64)
        walk = random_walk()
        values = state_values(walk, uniform_policy(walk), 1.0)
        torch.testing.assert_close(values, expected, rtol=0, atol=1e-8)

    def test_advantages_are_a_sixth_either_way(self):
        """CLAIMS row 6."""
        walk = random_walk()
        values = advantages(walk, uniform_policy(walk), 1.0)
        sixth = torch.tensor([-1 / 6, 1 / 6], dtype=torch.float64)
        expected = sixth.expand(5, 2)
        torch.testing.assert_close(values[1:-1], expected, rtol=0, atol=1e-8)
        assert not values[[0, -1]].any()

    def test_visits_from_the_middle_are_one_two_three_two_one(self):
        """CLAIMS row 5b."""
        walk = random_walk()
        visits = visitation(walk, uniform_policy(walk))
        expected = torch.tensor([0.0, 1, 2, 3, 2, 1, 0], dtype=torch.float64)
        torch.testing.assert_close(visits, expected, rtol=0, atol=1e-8)

    @pytest.mark.parametrize("n", [1, 2, 5, 19, 30])
    def test_any_length_has_the_same_closed_form(self, n):
        walk = random_walk(n)
        values = state_values(walk, uniform_policy(walk), 1.0)
        expected = [float(Fraction(k, n + 1)) for k in range(1, n + 1)]
        assert values[1:-1].tolist() == pytest.approx(expected, abs=1e-8)
        assert walk.start.sum() == 1.0
        assert (walk.start @ values).item() == pytest.approx(0.5)  # the middle
        assert len(walk.state_names) == n + 2

    def test_pays_for_entering_the_right_end_and_for_nothing_else(self):
        walk = random_walk()
        assert walk.rewards.sum() == 1.0
        e, right, end = walk.state_names.index("E"), 1, 6
        assert walk.rewards[e, right, end] == 1.0
        assert walk.state_names == ("left end", *"ABCDE", "right end")
        assert walk.action_names == ("left", "right")


class TestExactValues:
    def test_l20_the_reward_belongs_to_the_move_and_the_end_is_worth_nothing(self):
        """LxMLS/lxmls-toolkit PR 172; yrlu/irl-imitation #3; aima-python PR 1337."""
        mdp = two_states()
        values = state_values(mdp, uniform_policy(mdp), 0.9)
        assert values.tolist() == [1.0, 0.0]

    def test_a_loop_before_the_end_discounts_the_reward(self):
        mdp = two_states(self_loop=0.5)
        v = state_values(mdp, uniform_policy(mdp), 0.9)[0].item()
        assert v == pytest.approx(0.5 / (1 - 0.45))

    @settings(max_examples=25, deadline=None)
    @given(
        states=st.integers(2, 6),
        actions=st.integers(1, 3),
        gamma=st.sampled_from([0.0, 0.5, 0.95, 1.0]),
        seed=st.integers(0, 99),
    )
    def test_solves_agree_with_looking_ahead(self, states, actions, gamma, seed):
        mdp = random_mdp(states, actions, seed)
        policy = random_policy(mdp, seed)
        values = state_values(mdp, policy, gamma)
        ahead = values_by_looking_ahead(mdp, policy, gamma, horizon=600)
        torch.testing.assert_close(values, ahead, rtol=0, atol=1e-8)
        q = action_values(mdp, policy, gamma)
        for a in range(actions):
            always = torch.zeros_like(policy)
            always[:, a] = 1.0
            # One step of "always a", then `values`: the definition of Q.
            first = values_by_looking_ahead(mdp, always, 0.0, horizon=1)
            later = mdp.transition[:, a] @ ahead * ~mdp.terminal
            torch.testing.assert_close(
                q[:, a], first + gamma * later, rtol=0, atol=1e-8
            )
        mean = (policy * advantages(mdp, policy, gamma)).sum(-1)
        torch.testing.assert_close(mean, torch.zeros_like(mean), rtol=0, atol=1e-8)

    @pytest.mark.parametrize("gamma", [0.0, 0.7, 1.0])
    def test_visits_agree_with_following_the_distribution(self, gamma):
        mdp = random_mdp(5, 2, seed=3)
        policy = random_policy(mdp, seed=4)
        expected, here = [0.0] * 5, mdp.start.tolist()
        for t in range(600):
            after = [0.0] * 5
            for s in range(4):
                expected[s] += gamma**t * here[s]
                for a in range(2):
                    for s2 in range(5):
                        p = mdp.transition[s, a, s2].item() if here[s] > 1e-12 else 0
                        after[s2] += here[s] * policy[s, a].item() * p
            here = after
            if max(here[:4]) <= 1e-12:
                break
        visits = visitation(mdp, policy, gamma=gamma)
        assert visits.tolist() == pytest.approx(expected, abs=1e-8)
        # Values by visits: J = sum_s d(s) r_pi(s) = p_0 . V.
        gained = (policy[..., None] * mdp.transition * mdp.rewards).sum((1, 2))
        objective = mdp.start @ state_values(mdp, policy, gamma)
        assert (visits @ gained).item() == pytest.approx(objective.item())

    def test_an_undiscounted_policy_that_never_ends_is_refused_by_state_name(self):
        walk = random_walk()
        pace = torch.zeros(7, 2, dtype=torch.float64)
        pace[:, 1] = 1.0
        pace[5] = torch.tensor([1.0, 0.0])  # from E back to D, for ever
        with pytest.raises(ValueError, match=r"gamma must be below 1.* A, B, C, D, E$"):
            state_values(walk, pace, 1.0)
        with pytest.raises(ValueError, match=r"C, D, E$"):
            visitation(walk, pace)
        assert not state_values(walk, pace, 0.9).any()
        assert visitation(walk, pace, gamma=0.5).sum().item() == pytest.approx(2.0)

    def test_a_trap_that_the_start_does_not_lead_to_leaves_visits_alone(self):
        walk = random_walk()
        start = torch.zeros(7)
        start[5] = 1.0
        mdp = FiniteMDP(walk.transition, walk.rewards, walk.terminal, start)
        policy = torch.zeros(7, 2, dtype=torch.float64)
        policy[[1, 3, 5], 1] = 1.0  # E ends at once; A and B, C and D go in circles
        policy[[0, 2, 4, 6], 0] = 1.0
        assert visitation(mdp, policy).tolist() == [0, 0, 0, 0, 0, 1, 0]
        with pytest.raises(ValueError, match="gamma"):
            state_values(mdp, policy, 1.0)


class TestFiniteMDP:
    def test_terminal_states_lose_what_their_rows_said(self):
        mdp = two_states()
        assert mdp.transition[1, 0].tolist() == [0.0, 1.0]
        assert not mdp.rewards[1].any()
        nan_rows = mdp.transition.clone()
        nan_rows[1] = float("nan")
        same = FiniteMDP(nan_rows, mdp.rewards, mdp.terminal, mdp.start)
        assert torch.equal(same.transition, mdp.transition)
        assert same.state_names == ("0", "1")

    @pytest.mark.parametrize(
        ("field", "value", "words"),
        [
            ("transition", torch.ones(2, 1, 2), "transition must hold probabilities"),
            ("transition", torch.ones(2, 1, 3), r"transition must have shape"),
            ("transition", torch.ones(2, 2), "transition must have at least 3"),
            ("rewards", torch.ones(2, 1), "rewards must have shape"),
            ("rewards", torch.full((2, 1, 2), torch.inf), "rewards must be finite"),
            ("terminal", torch.tensor([False]), "terminal must have shape"),
            ("start", torch.tensor([0.5, 0.5]), "start must give terminal states no"),
            ("start", torch.tensor([0.5, 0.0]), "start must hold probabilities"),
            ("start", torch.tensor([2.0, -1.0]), "start must hold probabilities"),
            ("state_names", ("A",), "state_names must hold 2 names, got 1"),
        ],
    )
    def test_refuses_what_is_no_mdp(self, field, value, words):
        mdp = two_states()
        fields = {**vars(mdp), field: value}
        with pytest.raises(ValueError, match=words):
            FiniteMDP(**fields)

    def test_wants_boolean_flags(self):
        mdp = two_states()
        with pytest.raises(TypeError, match="terminal must be bool"):
            FiniteMDP(**{**vars(mdp), "terminal": torch.tensor([0, 1])})

    @pytest.mark.parametrize(
        ("policy", "words"),
        [
            (torch.ones(7, 2), "policy must hold probabilities"),
            (torch.full((7, 2), torch.nan), "policy must hold probabilities"),
            (torch.ones(2), "policy must have shape"),
        ],
    )
    def test_a_policy_is_one_distribution_for_each_state(self, policy, words):
        with pytest.raises(ValueError, match=words):
            require_policy(random_walk(), policy)


class TestEpisodes:
    def test_every_row_is_one_walk_from_the_middle_to_an_end(self):
        walk = random_walk()
        episodes = sample_episodes(walk, uniform_policy(walk), 200, generator=seeded())
        for i in range(200):
            n = int(episodes.mask[i].sum())
            assert episodes.mask[i].tolist() == [
                t < n for t in range(len(episodes.mask[i]))
            ]
            s, a = episodes.states[i, :n].tolist(), episodes.actions[i, :n].tolist()
            after = episodes.next_states[i, :n].tolist()
            assert s[0] == 3 and s[1:] == after[:-1]
            assert after == [x + (1 if b else -1) for x, b in zip(s, a, strict=True)]
            assert after[-1] in (0, 6) and not {0, 6} & set(s)
            paid = episodes.rewards[i, :n].tolist()
            assert paid == [0.0] * (n - 1) + [float(after[-1] == 6)]
            assert episodes.terminated[i].nonzero().tolist() == [[n - 1]]
        assert not episodes.truncated.any()
        padding = ~episodes.mask
        for name in ("states", "actions", "rewards", "next_states"):
            assert not getattr(episodes, name)[padding].any()

    def test_draws_have_the_models_frequencies(self):
        mdp = random_mdp(4, 3, seed=1)
        policy = random_policy(mdp, seed=2)
        e = sample_episodes(mdp, policy, 20_000, generator=seeded(5))
        n = len(e)
        first = torch.bincount(e.states[:, 0], minlength=4) / n
        assert (first - mdp.start).abs().max() < 4 * 0.5 / n**0.5
        for s in range(3):
            here = e.mask & (e.states == s)
            chosen = torch.bincount(e.actions[here], minlength=3) / here.sum()
            assert (chosen - policy[s]).abs().max() < 4 * 0.5 / here.sum() ** 0.5
            for a in range(3):
                pair = here & (e.actions == a)
                moved = torch.bincount(e.next_states[pair], minlength=4) / pair.sum()
                error = (moved - mdp.transition[s, a]).abs().max()
                assert error < 4 * 0.5 / pair.sum() ** 0.5

    def test_what_has_probability_zero_is_never_drawn(self):
        walk = random_walk()
        policy = torch.zeros(7, 2, dtype=torch.float64)
        policy[:, 0] = 1.0
        episodes = sample_episodes(walk, policy, 500, generator=seeded())
        assert episodes.states.tolist() == [[3, 2, 1]] * 500
        policy = policy.flip(-1)
        episodes = sample_episodes(walk, policy, 500, generator=seeded())
        assert episodes.states.tolist() == [[3, 4, 5]] * 500

    def test_the_generator_is_the_only_source_of_randomness(self):
        walk = random_walk()
        policy = uniform_policy(walk)
        one = sample_episodes(walk, policy, 50, generator=seeded(7))
        torch.manual_seed(0)
        torch.rand(3)
        two = sample_episodes(walk, policy, 50, generator=seeded(7))
        assert torch.equal(one.states, two.states)
        other = sample_episodes(walk, policy, 50, generator=seeded(8))
        assert one.states.shape != other.states.shape or not torch.equal(
            one.states, other.states
        )

    def test_an_episode_that_runs_out_of_steps_is_truncated_not_terminated(self):
        walk = random_walk()
        policy = uniform_policy(walk)
        e = sample_episodes(walk, policy, 400, generator=seeded(), max_steps=3)
        ends = e.next_states[:, 2]
        over = (ends == 0) | (ends == 6)
        assert e.mask.all() and 0 < over.sum() < 400
        assert torch.equal(e.terminated[:, 2], over)
        assert torch.equal(e.truncated[:, 2], ~over)
        assert not e.terminated[:, :2].any() and not e.truncated[:, :2].any()

    def test_sampling_from_a_pair_and_from_its_state_differ_by_the_advantage(self):
        walk = random_walk()
        policy = uniform_policy(walk)
        n, c, right = 20_000, 3, 1
        from_pair = sample_episodes(
            walk, policy, n, generator=seeded(1), start_state=c, start_action=right
        )
        from_state = sample_episodes(
            walk, policy, n, generator=seeded(2), start_state=c
        )
        assert set(from_pair.states[:, 0].tolist()) == {c}
        assert set(from_pair.actions[:, 0].tolist()) == {right}
        assert set(from_state.actions[:, 0].tolist()) == {0, 1}
        q, v = (e.rewards.sum(-1).mean().item() for e in (from_pair, from_state))
        four_errors = 4 * 0.5 / n**0.5
        assert q == pytest.approx(2 / 3, abs=four_errors)
        assert v == pytest.approx(1 / 2, abs=four_errors)
        assert q - v == pytest.approx(1 / 6, abs=1.5 * four_errors)

    def test_the_first_few_are_the_first_few(self):
        walk = random_walk()
        episodes = sample_episodes(walk, uniform_policy(walk), 9, generator=seeded())
        assert len(episodes.first(4)) == 4
        assert torch.equal(episodes.first(4).states, episodes.states[:4])
        with pytest.raises(ValueError, match="num_episodes must be at most 9"):
            episodes.first(10)

    @pytest.mark.parametrize(
        ("change", "error", "words"),
        [
            ({"num_episodes": 0}, ValueError, "num_episodes must be at least 1"),
            ({"num_episodes": 2.0}, TypeError, "num_episodes must be an integer"),
            ({"max_steps": 0}, ValueError, "max_steps must be at least 1"),
            ({"generator": 3}, TypeError, "generator must be a torch.Generator"),
            ({"start_state": 7}, ValueError, "start_state must lie in 0..6"),
            ({"start_state": 6}, ValueError, r"not be terminal, got 6 \(right end\)"),
            ({"start_action": -1}, ValueError, "start_action must lie in 0..1"),
        ],
    )
    def test_a_bad_argument_is_refused_by_name(self, change, error, words):
        walk = random_walk()
        arguments = {"num_episodes": 2, "generator": seeded(), **change}
        with pytest.raises(error, match=words):
            sample_episodes(walk, uniform_policy(walk), **arguments)
