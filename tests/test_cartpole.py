"""CartPole against Gymnasium's, step for step; its starts, seeds and lengths."""

import json
import math

import gymnasium
import pytest
import torch

from benchmarks.env_steps import RESULTS, measure
from course_lib.envs import CartPole

ALWAYS_RIGHT = (0.0, 0.0, 0.0, 0.0)
BALANCED = (0.1, 0.2, 1.0, 0.3)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def push_right_when_positive(*weights):
    """The policy "right iff weights . (x, v, theta, w) > 0"; all 0: always right."""
    row = torch.tensor(weights)
    if not row.any():
        return lambda observations: torch.ones(len(observations), dtype=torch.int64)
    return lambda observations: (observations @ row.to(observations) > 0).long()


def uniformly_random(seed=0):
    source = seeded(seed)
    return lambda observations: torch.randint(2, (len(observations),), generator=source)


def episode_lengths(env, policy):
    """The length of each environment's first episode, [B].

    One episode each: of the first N to end, the short ones would be too many.
    """
    observations = env.reset()
    lengths = torch.zeros(env.num_envs, dtype=torch.int64)
    for step in range(1, env.max_steps + 1):
        transition = env.step(policy(observations))
        over = transition.terminated | transition.truncated
        lengths[over & (lengths == 0)] = step
        observations = transition.observations
        if lengths.all():
            break
    assert lengths.all(), "an episode went on beyond the limit"
    return lengths


def starts_of(env, episodes):
    """The starts of that many episodes in a row, [episodes, B, 4]."""
    return torch.stack([env.reset() for _ in range(episodes)])


class Peers:
    """B of Gymnasium's environments, one by one, in float64."""

    def __init__(self, num_envs, **options):
        options = {"disable_env_checker": True, **options}
        self.envs = [gymnasium.make("CartPole-v1", **options) for _ in range(num_envs)]
        for index, env in enumerate(self.envs):
            env.reset(seed=index)

    def states(self):
        rows = [torch.tensor(env.unwrapped.state) for env in self.envs]
        return torch.stack(rows).double()

    def step(self, actions):
        """The states reached, rewards and both flags; ended ones are then reset."""
        outcomes = [
            env.step(action)
            for env, action in zip(self.envs, actions.tolist(), strict=True)
        ]
        reached = self.states()
        for env, outcome in zip(self.envs, outcomes, strict=True):
            if outcome[2] or outcome[3]:
                env.reset()
        return reached, *(torch.tensor([o[k] for o in outcomes]) for k in (1, 2, 3))


def compare_with_gymnasium(env, peers, policy, steps):
    """Count ends of each kind; every step of both must be the same."""
    observations = env.set_state(peers.states())
    counts = {"terminated": 0, "truncated": 0, "both": 0}
    for _ in range(steps):
        actions = policy(observations)
        reached, rewards, terminated, truncated = peers.step(actions)
        ours = env.step(actions)
        assert (ours.next_observations - reached).abs().max() <= 1e-12
        assert torch.equal(ours.rewards, rewards)
        assert torch.equal(ours.terminated, terminated)
        assert torch.equal(ours.truncated, truncated)
        counts["terminated"] += int((terminated & ~truncated).sum())
        counts["truncated"] += int((truncated & ~terminated).sum())
        counts["both"] += int((truncated & terminated).sum())
        over = terminated | truncated
        observations = ours.observations
        if over.any():  # the streams of starts differ, so take over Gymnasium's
            observations = env.set_state(peers.states(), over)
    return counts


def test_10000_random_steps_are_gymnasiums_to_1e_12_flags_included():
    env = CartPole(2, dtype=torch.float64)
    counts = compare_with_gymnasium(env, Peers(2), uniformly_random(), 10_000)
    assert counts["terminated"] > 800


def test_episodes_cut_at_a_limit_are_gymnasiums_too():
    # Not at 500: under the same pushes, a pole upside down multiplies a difference in
    # the last bit by some 10^12 until then, and one of the two poles falls.
    env = CartPole(3, max_steps=100, dtype=torch.float64)
    peers = Peers(3, max_episode_steps=100)
    policy = push_right_when_positive(*BALANCED)
    counts = compare_with_gymnasium(env, peers, policy, 1_100)
    assert counts == {"terminated": 0, "truncated": 33, "both": 0}


def test_a_pole_that_falls_at_the_last_step_sets_both_flags_as_in_gymnasium():
    env = CartPole(4, max_steps=9, dtype=torch.float64)
    policy = push_right_when_positive(*ALWAYS_RIGHT)
    counts = compare_with_gymnasium(env, Peers(4, max_episode_steps=9), policy, 200)
    assert min(counts.values()) > 5


@pytest.mark.parametrize("side", [-1.0, 1.0])
@pytest.mark.parametrize(
    ("index", "limit"), [(0, 2.4), (2, math.radians(12))], ids=["cart", "pole"]
)
def test_an_episode_ends_beyond_either_limit_and_not_on_it(index, limit, side):
    """A cart (or pole) at rest keeps its place for one step: Euler's old velocities."""
    env = CartPole(2, dtype=torch.float64)
    states = torch.zeros(2, 4, dtype=torch.float64)
    states[0, index] = side * limit
    states[1, index] = side * math.nextafter(limit, 9.0)
    env.set_state(states)
    assert env.step(torch.tensor([0, 1])).terminated.tolist() == [False, True]


def test_the_random_policy_lasts_22_steps():
    lengths = episode_lengths(CartPole(1_000, seeds=0), uniformly_random(1)).double()
    assert 20.7 < lengths.mean() < 23.8
    assert 10.0 < lengths.std() < 14.0
    assert lengths.min() >= 8


def test_always_right_falls_after_8_to_11_steps():
    policy = push_right_when_positive(*ALWAYS_RIGHT)
    lengths = episode_lengths(CartPole(1_000, seeds=0), policy)
    assert sorted(set(lengths.tolist())) == [8, 9, 10, 11]
    assert abs(lengths.double().mean() - 9.354) < 0.1
    shares = [(lengths == length).double().mean() for length in (8, 9, 10, 11)]
    assert shares == pytest.approx([0.133, 0.414, 0.418, 0.035], abs=0.06)


@pytest.mark.parametrize(
    ("weights", "low", "high"),
    [((0, 0, 1, 0), 39, 45), ((0, 0, 0, 1), 185, 213), ((0, 0, 1, 1), 470, 497)],
    ids=["angle", "its rate", "their sum"],
)
def test_hand_made_policies_do_better(weights, low, high):
    policy = push_right_when_positive(*map(float, weights))
    lengths = episode_lengths(CartPole(1_000, seeds=0), policy)
    assert low < lengths.double().mean() < high


def test_the_balanced_policy_lasts_500_steps_in_2000_of_2000_episodes():
    policy = push_right_when_positive(*BALANCED)
    lengths = episode_lengths(CartPole(2_000, seeds=0), policy)
    assert (lengths == 500).all()


def test_a_policy_that_never_fails_earns_500_and_is_then_truncated():
    """CASES L13: a loop that waits for `terminated` alone would never return."""
    env = CartPole(1, seeds=0)
    policy = push_right_when_positive(*BALANCED)
    observations, total, steps = env.reset(), 0.0, 0
    while steps < 600:
        transition = env.step(policy(observations))
        observations = transition.observations
        total, steps = total + transition.rewards.item(), steps + 1
        assert not transition.terminated
        if transition.truncated:
            break
    assert (total, steps) == (500.0, 500)


def test_the_step_count_starts_again_with_a_reset():
    """CASES K56: 3 steps, a reset, then truncated exactly at the 500th step."""
    env = CartPole(2, seeds=0)
    policy = push_right_when_positive(*BALANCED)
    observations = env.reset()
    for _ in range(3):
        observations = env.step(policy(observations)).observations
    observations = env.reset()
    ends = []
    for step in range(1, 1_001):
        transition = env.step(policy(observations))
        observations = transition.observations
        if transition.truncated.any():
            ends.append((step, transition.truncated.tolist()))
    assert ends == [(500, [True, True]), (1_000, [True, True])]


def test_set_state_starts_the_count_again_only_where_it_is_asked_to():
    env = CartPole(2, seeds=0, max_steps=5)
    before = env.reset()
    right = torch.tensor([1, 0])
    for _ in range(3):
        before = env.step(right).observations
    after = env.set_state(torch.zeros(2, 4), torch.tensor([True, False]))
    assert torch.equal(after[0], torch.zeros(4))
    assert torch.equal(after[1], before[1])
    cut = torch.stack([env.step(right).truncated for _ in range(5)])
    assert cut[:, 0].tolist() == [False, False, False, False, True]
    assert cut[:, 1].tolist() == [False, True, False, False, False]


def test_the_observation_really_reached_is_kept_where_an_episode_ends():
    env = CartPole(64, seeds=0, max_steps=12)
    env.reset()
    policy, ends = uniformly_random(), 0
    for _ in range(200):
        step = env.step(policy(torch.zeros(64, 4)))
        over = step.terminated | step.truncated
        ends += int(over.sum())
        same = (step.observations == step.next_observations).all(1)
        assert torch.equal(same, ~over)
        assert (step.observations[over].abs() <= 0.05 + 1e-8).all()
        x, theta = step.next_observations[:, 0], step.next_observations[:, 2]
        fallen = (x.abs() > 2.4) | (theta.abs() > math.radians(12))
        assert torch.equal(step.terminated, fallen)
    assert ends > 500


def test_a_later_step_does_not_write_into_an_earlier_one():
    env = CartPole(16, seeds=0)
    policy = uniformly_random()
    first = env.reset()
    kept = [first, *env.step(policy(first))]
    copies = [tensor.clone() for tensor in kept]
    for _ in range(50):
        env.step(policy(first))
    env.reset()
    env.set_state(torch.zeros(16, 4))
    assert all(map(torch.equal, kept, copies))


def test_what_a_caller_does_to_its_tensors_moves_no_cart():
    spoiled, clean = CartPole(8, seeds=5), CartPole(8, seeds=5)
    spoiled.reset().add_(100.0)
    clean.reset()
    given = torch.zeros(8, 4)
    spoiled.set_state(given)
    given.add_(100.0)
    clean.set_state(torch.zeros(8, 4))
    for _ in range(40):
        actions = torch.ones(8, dtype=torch.int64)
        theirs, ours = spoiled.step(actions), clean.step(actions)
        assert all(map(torch.equal, theirs, ours))
        for tensor in theirs:
            tensor.fill_(1)
        assert torch.equal(actions, torch.ones(8, dtype=torch.int64))


def rollout(env, columns, steps=120):
    """What the first `columns` environments see; environment i acts by (t, i)."""
    table = torch.randint(2, (steps, 16), generator=seeded(3))
    seen = [env.reset()]
    for row in table:
        transition = env.step(row[: env.num_envs])
        seen += [transition.observations, transition.next_observations]
    return torch.stack([observations[:columns] for observations in seen])


def test_an_environments_episodes_do_not_depend_on_who_runs_beside_it():
    alone = rollout(CartPole(1, seeds=[11]), 1)
    few = rollout(CartPole(3, seeds=[11, 4, 9]), 3)
    many = rollout(CartPole(16, seeds=[11, 4, 9, *range(100, 113)]), 3)
    # Vectorised arithmetic may round the last bits by the place in the batch.
    torch.testing.assert_close(few, many, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(alone, many[:, :1], rtol=1e-4, atol=1e-5)


def test_one_integer_seeds_all_and_each_can_be_repeated_alone():
    eight, four = CartPole(8, seeds=7), CartPole(4, seeds=7)
    starts = starts_of(eight, 3)
    assert torch.equal(starts[:, :4], starts_of(four, 3))
    alone = CartPole(1, seeds=[int(eight.seeds[5])])
    assert torch.equal(starts[:, 5:6], starts_of(alone, 3))


def test_two_integers_share_no_environment():
    seeds = torch.cat([CartPole(1_000, seeds=seed).seeds for seed in range(20)])
    assert len(seeds.unique()) == 20_000
    assert (seeds >= 0).all()


def test_without_a_seed_runs_differ_and_the_global_state_is_left_alone():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    one, other = CartPole(4), CartPole(4)
    assert not torch.equal(one.reset(), other.reset())
    one.step(torch.zeros(4, dtype=torch.int64))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_reset_begins_the_next_episode_not_the_first_again():
    starts = starts_of(CartPole(3, seeds=1), 50)
    assert len(starts.flatten().unique()) == 50 * 3 * 4


def test_starts_are_uniform_for_neighbouring_seeds_and_for_one_seed():
    many = starts_of(CartPole(20_000, seeds=range(20_000)), 1).reshape(-1, 4)
    one = starts_of(CartPole(1, seeds=[0]), 20_000).reshape(-1, 4)
    for draws in (many, one):
        assert (draws.abs() <= 0.05 + 1e-8).all()
        for numbers in draws.T.double():
            counts = torch.histc(numbers, bins=32, min=-0.05, max=0.05)
            chi_square = ((counts - 625.0) ** 2 / 625.0).sum()
            assert 8.0 < chi_square < 70.0  # 31 degrees: all but about 1e-4
            assert abs(numbers.mean()) < 4 * 0.05 / math.sqrt(3 * 20_000)


def test_starts_are_independent_over_numbers_episodes_and_neighbours():
    draws = starts_of(CartPole(5_000, seeds=range(5_000)), 4).double()  # [4, B, 4]
    columns = draws.permute(1, 0, 2).reshape(5_000, 16)
    neighbours = torch.cat([columns[:-1], columns[1:]], 1)  # [B - 1, 32]
    for table in (neighbours, neighbours.abs()):
        correlation = torch.corrcoef(table.T) - torch.eye(32, dtype=torch.float64)
        assert correlation.abs().max() < 5 / math.sqrt(5_000)
    pairs = torch.histogramdd(columns[:, :2].contiguous(), bins=[4, 4]).hist
    assert ((pairs - 312.5) ** 2 / 312.5).sum() < 45.0  # 15 degrees


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_any_floating_dtype_has_float32s_episodes(dtype):
    wide, other = CartPole(64, seeds=2), CartPole(64, seeds=2, dtype=dtype)
    observations = other.reset()
    torch.testing.assert_close(wide.reset().to(dtype), observations)
    assert observations.dtype == dtype
    policy = uniformly_random()
    for _ in range(30):
        actions = policy(observations)
        ours, theirs = other.step(actions), wide.step(actions)
        assert ours.rewards.dtype == ours.next_observations.dtype == dtype
        assert torch.equal(ours.terminated, theirs.terminated)
        error = (ours.observations.double() - theirs.observations.double()).abs()
        assert error.max() < max(1e-5, 4 * torch.finfo(dtype).eps)


def test_shapes_and_dtypes_are_those_that_are_promised():
    env = CartPole(5, seeds=0)
    assert env.reset().shape == (5, 4)
    step = env.step(torch.zeros(5, dtype=torch.int64))
    assert step.observations.shape == step.next_observations.shape == (5, 4)
    for flag in (step.terminated, step.truncated):
        assert flag.shape == (5,)
        assert flag.dtype == torch.bool
    assert step.rewards.tolist() == [1.0] * 5
    assert (env.num_actions, env.observation_size, env.num_envs) == (2, 4, 5)


@pytest.mark.parametrize(
    ("error", "word", "call"),
    [
        (TypeError, "num_envs", lambda: CartPole(2.0)),
        (ValueError, "num_envs", lambda: CartPole(0)),
        (ValueError, "max_steps", lambda: CartPole(1, max_steps=0)),
        (TypeError, "dtype", lambda: CartPole(1, dtype=torch.int64)),
        (TypeError, "seeds", lambda: CartPole(1, seeds="7")),
        (TypeError, "seeds", lambda: CartPole(1, seeds=True)),
        (TypeError, "seeds", lambda: CartPole(1, seeds=[0.5])),
        (ValueError, "seeds", lambda: CartPole(2, seeds=[1])),
        (ValueError, "seeds", lambda: CartPole(1, seeds=-1)),
        (ValueError, "seeds", lambda: CartPole(1, seeds=2**63)),
    ],
)
def test_what_cannot_be_built_is_refused_by_name(error, word, call):
    with pytest.raises(error, match=word):
        call()


@pytest.mark.parametrize(
    ("error", "actions", "came"),
    [
        (TypeError, [0, 1], "list"),
        (TypeError, torch.zeros(2), "float32"),
        (ValueError, torch.zeros(2, 1, dtype=torch.int64), r"\[2, 1\]"),
        (ValueError, torch.tensor([0, 2]), "0 to 2"),
        (ValueError, torch.tensor([-1, 0]), "-1 to 0"),
    ],
)
def test_actions_that_do_not_fit_are_refused_and_change_nothing(error, actions, came):
    env, twin = CartPole(2, seeds=0), CartPole(2, seeds=0)
    env.reset()
    twin.reset()
    with pytest.raises(error, match=f"actions.*{came}"):
        env.step(actions)
    right = torch.tensor([0, 1])
    assert all(map(torch.equal, env.step(right), twin.step(right)))


def test_a_step_before_the_first_reset_says_so():
    with pytest.raises(RuntimeError, match="reset"):
        CartPole(1).step(torch.tensor([0]))
    with pytest.raises(RuntimeError, match="reset"):
        CartPole(1).set_state(torch.zeros(1, 4), torch.tensor([True]))


def test_set_state_refuses_what_would_broadcast():
    env = CartPole(2, seeds=0)
    with pytest.raises(ValueError, match=r"observations.*\[2, 4\].*\[4\]"):
        env.set_state(torch.zeros(4))
    with pytest.raises(TypeError, match=r"mask.*bool"):
        env.set_state(torch.zeros(2, 4), torch.ones(2))


def test_the_kept_benchmark_says_what_its_readme_claims_and_still_holds():
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))
    ratios = {
        row["num_envs"]: row["ours_over"]["CartPoleVectorEnv"] for row in kept["rows"]
    }
    assert sum(ratios[size] > 1.0 for size in (64, 1024, 65536)) >= 2
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        again = measure(65536, rounds=5, seed=1, sync=False)
    finally:
        torch.set_num_threads(threads)
    # Half of what was kept: another machine's caches and vector units differ.
    assert again["ours_over"]["CartPoleVectorEnv"] > ratios[65536] / 2
