"""The Gymnasium adapter in every autoreset mode, against episodes written by hand."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from course_lib.envs import CartPole, GymnasiumVector

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]
BY_NAME = {"ids": lambda mode: mode.name}
# Each environment's episodes: their length and how they end, over and over.
SCRIPTS = [
    [(2, "terminated"), (1, "truncated"), (3, "both")],
    [(1, "terminated")],
    [(4, "truncated"), (2, "terminated")],
]


class Scripted(gymnasium.Env):
    """Observes (which environment, episode, step); pays 100 episode + step + action."""

    observation_space = Box(-1.0, 1e6, (3,), np.float64)
    action_space = Discrete(3)

    def __init__(self, index=0):
        self.index, self.episode, self.time, self.over = index, -1, 0, True

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.time, self.over = self.episode + 1, 0, False
        return self.observe(), {}

    def step(self, action):
        assert not self.over, "stepped after its end"
        self.time += 1
        script = SCRIPTS[self.index]
        length, kind = script[self.episode % len(script)]
        self.over = self.time == length
        terminated = self.over and kind in ("terminated", "both")
        truncated = self.over and kind in ("truncated", "both")
        reward = 100.0 * self.episode + self.time + 0.1 * float(action)
        return self.observe(), reward, terminated, truncated, {}

    def observe(self):
        return np.array([self.index, self.episode, self.time], dtype=np.float64)


def expected(index, steps, actions):
    """The transitions of one scripted environment, from its script alone."""
    script, episode, time = SCRIPTS[index], 0, 0
    for action in actions[:steps]:
        time += 1
        length, kind = script[episode % len(script)]
        reward = 100.0 * episode + time + 0.1 * action
        reached = seen = [index, episode, time]
        over = time == length
        if over:
            episode, time = episode + 1, 0
            seen = [index, episode, 0]
        flags = [
            over and kind in (name, "both") for name in ("terminated", "truncated")
        ]
        yield seen, reward, *flags, reached


def scripted(mode, **options):
    makers = [lambda index=index: Scripted(index) for index in range(3)]
    return SyncVectorEnv(makers, autoreset_mode=mode, **options)


def check_against_script(env, steps=40):
    start = env.reset().tolist()
    assert start == [[index, start[0][1], 0] for index in range(3)]
    actions = torch.randint(3, (steps, 3), generator=torch.Generator().manual_seed(0))
    rows = [env.step(row) for row in actions]
    for index in range(3):
        script = expected(index, steps, actions[:, index].tolist())
        for step, (seen, reward, terminated, truncated, reached) in zip(
            rows, script, strict=True
        ):
            assert step.observations[index].tolist() == seen
            assert step.rewards[index].item() == pytest.approx(reward)
            assert step.terminated[index].item() is terminated
            assert step.truncated[index].item() is truncated
            assert step.next_observations[index].tolist() == reached


@pytest.mark.parametrize("copy", [True, False], ids=["copying", "one buffer"])
@pytest.mark.parametrize("mode", MODES, **BY_NAME)
def test_every_transition_is_the_scripts_and_none_is_junk(mode, copy):
    check_against_script(GymnasiumVector(scripted(mode, copy=copy)))


def test_the_trap_is_real_where_gymnasium_is_read_naively():
    """KERNELS trap 11: in NEXT_STEP the step after an end pays 0 and moves nobody."""
    env = scripted(AutoresetMode.NEXT_STEP)
    env.reset()
    rewards = [env.step(np.zeros(3, dtype=np.int64))[1][1] for _ in range(4)]
    assert rewards == [1.0, 0.0, 101.0, 0.0]
    env = GymnasiumVector(scripted(AutoresetMode.NEXT_STEP), dtype=torch.float64)
    env.reset()
    still = torch.zeros(3, dtype=torch.int64)
    assert [env.step(still).rewards[1].item() for _ in range(4)] == [1, 101, 201, 301]


@pytest.mark.parametrize("mode", MODES, **BY_NAME)
def test_a_later_step_does_not_write_into_an_earlier_one(mode):
    env = GymnasiumVector(scripted(mode, copy=False), dtype=torch.float64)
    first = env.reset()
    actions = torch.ones(3, dtype=torch.int64)
    kept = [first, *env.step(actions)]
    copies = [tensor.clone() for tensor in kept]
    for tensor in env.step(actions):
        tensor.fill_(1)  # nor may what the caller does reach the environment
    for _ in range(5):
        env.step(actions)
    env.reset()
    assert all(map(torch.equal, kept, copies))
    assert torch.equal(actions, torch.ones(3, dtype=torch.int64))


@pytest.mark.parametrize("mode", MODES, **BY_NAME)
def test_cartpole_through_the_adapter_is_the_librarys_own(mode):
    env = GymnasiumVector(
        gymnasium.make_vec(
            "CartPole-v1",
            6,
            vectorization_mode="sync",
            vector_kwargs={"autoreset_mode": mode},
        ),
        seeds=[3, 1, 4, 1, 5, 9],
        dtype=torch.float64,
    )
    own = CartPole(6, dtype=torch.float64)
    observations = env.reset()
    assert torch.equal(observations[1], observations[3])
    own.set_state(observations)
    source = torch.Generator().manual_seed(0)
    ends = 0
    for _ in range(400):
        actions = torch.randint(2, (6,), generator=source)
        theirs, ours = env.step(actions), own.step(actions)
        # Gymnasium hands float32 out, and the starts taken over carry its rounding.
        difference = theirs.next_observations - ours.next_observations
        assert difference.abs().max() < 1e-3
        assert torch.equal(theirs.rewards, ours.rewards)
        assert torch.equal(theirs.terminated, ours.terminated)
        assert torch.equal(theirs.truncated, ours.truncated)
        over = ours.terminated | ours.truncated
        same = (theirs.observations == theirs.next_observations).all(1)
        assert torch.equal(same, ~over)
        assert (theirs.observations[over].abs() <= 0.05).all()
        if over.any():
            own.set_state(theirs.observations, over)
        ends += int(over.sum())
    assert ends > 80


@pytest.mark.parametrize("mode", MODES, **BY_NAME)
def test_the_time_limits_truncation_keeps_its_own_final_observation(mode):
    env = GymnasiumVector(
        gymnasium.make_vec(
            "CartPole-v1",
            2,
            vectorization_mode="sync",
            vector_kwargs={"autoreset_mode": mode},
            max_episode_steps=5,
        ),
        seeds=0,
    )
    env.reset()
    actions = torch.tensor([0, 1])
    for step in range(1, 21):
        transition = env.step(actions)
        assert not transition.terminated.any()
        assert transition.truncated.tolist() == [step % 5 == 0] * 2
        speeds = transition.next_observations[:, 1]
        # Five pushes one way leave a speed of about 1 m/s, which no start has.
        if step % 5 == 0:
            assert speeds[0] < -0.8
            assert speeds[1] > 0.8
            assert (transition.observations.abs() <= 0.05).all()


def test_one_seed_repeats_a_run_and_a_second_reset_goes_on():
    def starts():
        made = gymnasium.make_vec("CartPole-v1", 3, vectorization_mode="sync")
        env = GymnasiumVector(made, seeds=5)
        return torch.stack([env.reset(), env.reset()])

    first, again = starts(), starts()
    assert torch.equal(first, again)
    assert not torch.equal(first[0], first[1])


@pytest.mark.parametrize("mode", MODES, **BY_NAME)
def test_environments_in_other_processes_are_served_too(mode):
    makers = [lambda index=index: Scripted(index) for index in range(3)]
    env = GymnasiumVector(AsyncVectorEnv(makers, autoreset_mode=mode))
    try:
        check_against_script(env, steps=12)
    finally:
        env.close()


def test_workers_that_forget_a_reset_are_refused():
    env = AsyncVectorEnv([Scripted], shared_memory=False)
    try:
        with pytest.raises(ValueError, match="shared_memory"):
            GymnasiumVector(env)
    finally:
        env.close()


def test_gymnasiums_cartpole_that_ignores_the_mask_is_refused_with_a_cure():
    env = gymnasium.make_vec("CartPole-v1", 4)
    assert env.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
    with pytest.raises(ValueError, match=r'reset_mask.*vectorization_mode="sync"'):
        GymnasiumVector(env)


def test_one_environment_alone_needs_no_mask():
    env = GymnasiumVector(gymnasium.make_vec("CartPole-v1", 1), seeds=0)
    own = CartPole(1)
    own.set_state(env.reset())
    for _ in range(60):
        theirs, ours = env.step(torch.tensor([1])), own.step(torch.tensor([1]))
        assert torch.equal(theirs.terminated, ours.terminated)
        assert theirs.rewards.item() == 1.0
        own.set_state(theirs.observations, theirs.terminated)


class Counters(VectorEnv):
    """Counts to 3, 4, 5, ...; `knows_mask` says whether it heeds a reset mask."""

    def __init__(self, mode, knows_mask, num_envs=3, tells_final=True):
        self.metadata = {"autoreset_mode": mode}
        self.num_envs, self.knows_mask = num_envs, knows_mask
        self.tells_final = tells_final
        self.single_observation_space = Box(0, 99, (1,), np.float32)
        self.single_action_space = Discrete(2)
        self.counts, self.limits = np.zeros(num_envs), np.arange(num_envs) + 3
        # Handed out again and again, as an environment may that saves its memory.
        self.over, self.never = np.zeros((2, num_envs), dtype=bool)

    def reset(self, *, seed=None, options=None):
        mask = (options or {}).get("reset_mask")
        which = mask if self.knows_mask and mask is not None else slice(None)
        self.counts[which] = 0
        self.over[:] = False
        return self.counts[:, None].copy(), {}

    def step(self, actions):
        self.counts += 1
        self.over[:] = self.counts >= self.limits
        infos = {}
        if self.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP:
            if self.tells_final:
                infos["final_obs"] = self.counts[:, None].copy()
            self.counts[self.over] = 0
        observations = self.counts[:, None].copy()
        return observations, np.ones(self.num_envs), self.over, self.never, infos


@pytest.mark.parametrize("mode", MODES, **BY_NAME)
def test_a_vector_environment_of_ones_own_is_served(mode):
    env = GymnasiumVector(Counters(mode, knows_mask=True))
    assert env.reset().tolist() == [[0], [0], [0]]
    rows = [env.step(torch.zeros(3, dtype=torch.int64)) for _ in range(12)]
    for index, limit in enumerate((3, 4, 5)):
        for step, row in enumerate(rows, start=1):
            assert row.next_observations[index].item() == (step - 1) % limit + 1
            assert row.observations[index].item() == step % limit
            assert row.terminated[index].item() is (step % limit == 0)


def test_an_environment_that_breaks_its_word_later_is_stopped():
    """All its starts are alike, so that only a reset amid an episode shows it."""
    env = GymnasiumVector(Counters(AutoresetMode.DISABLED, knows_mask=False))
    env.reset()
    still = torch.zeros(3, dtype=torch.int64)
    env.step(still)
    env.step(still)
    with pytest.raises(RuntimeError, match="moved the others"):
        env.step(still)


def test_an_end_without_its_final_observation_is_not_guessed_at():
    made = Counters(AutoresetMode.SAME_STEP, knows_mask=False, tells_final=False)
    env = GymnasiumVector(made)
    env.reset()
    still = torch.zeros(3, dtype=torch.int64)
    env.step(still)
    env.step(still)
    with pytest.raises(RuntimeError, match="final_obs"):
        env.step(still)


class Recorder(gymnasium.Env):
    """Keeps the last action it was given; any spaces."""

    def __init__(self, action_space, observation_space=None):
        self.action_space = action_space
        self.observation_space = observation_space or Box(-9, 9, (2, 3), np.float32)
        self.got = None

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        self.got = action
        return self.observation_space.sample(), 0.0, False, False, {}


def test_box_actions_arrive_in_the_spaces_dtype_and_shape():
    made = SyncVectorEnv([lambda: Recorder(Box(-2.0, 2.0, (2,), np.float32))] * 2)
    env = GymnasiumVector(made)
    assert env.reset().shape == (2, 2, 3)
    assert (env.action_shape, env.observation_size) == ((2,), 6)
    actions = torch.tensor([[0.5, -1.0], [2.0, 0.0]], dtype=torch.bfloat16)
    env.step(actions.requires_grad_())
    got = [single.got for single in made.envs]
    assert [row.tolist() for row in got] == [[0.5, -1.0], [2.0, 0.0]]
    assert got[0].dtype == np.float32
    with pytest.raises(TypeError, match="action_shape"):
        _ = env.num_actions
    with pytest.raises(ValueError, match=r"actions.*\[2, 2\].*\[2\]"):
        env.step(torch.zeros(2))


def test_discrete_actions_are_numbered_from_0_whatever_the_space_says():
    made = SyncVectorEnv([lambda: Recorder(Discrete(3, start=5))] * 2)
    env = GymnasiumVector(made)
    env.reset()
    assert (env.num_actions, env.action_shape) == (3, ())
    env.step(torch.tensor([0, 2]))
    assert [single.got for single in made.envs] == [5, 7]
    for wrong in (torch.tensor([0, 3]), torch.tensor([-1, 0])):
        with pytest.raises(ValueError, match=r"actions must lie in 0\.\.2"):
            env.step(wrong)
    with pytest.raises(TypeError, match=r"actions.*int64"):
        env.step(torch.zeros(2))


def test_what_it_cannot_serve_is_refused_by_name():
    with pytest.raises(TypeError, match=r"env.*VectorEnv"):
        GymnasiumVector(gymnasium.make("CartPole-v1"))
    table = SyncVectorEnv([lambda: Recorder(Discrete(2), Discrete(7))])
    with pytest.raises(TypeError, match="FlattenObservation"):
        GymnasiumVector(table)
    odd = SyncVectorEnv([lambda: Recorder(gymnasium.spaces.MultiBinary(2))])
    with pytest.raises(TypeError, match=r"env.*Discrete or Box"):
        GymnasiumVector(odd)
    with pytest.raises(ValueError, match="autoreset_mode"):
        GymnasiumVector(Counters(None, knows_mask=True))
    with pytest.raises(ValueError, match="seeds"):
        GymnasiumVector(scripted(AutoresetMode.SAME_STEP), seeds=[1, 2])
    env = GymnasiumVector(scripted(AutoresetMode.SAME_STEP))
    with pytest.raises(RuntimeError, match="reset"):
        env.step(torch.zeros(3, dtype=torch.int64))
