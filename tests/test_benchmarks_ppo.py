"""PPO beside its peers: like with like, and what was kept holds."""

import dataclasses
import json

import pytest

from benchmarks import ppo as bench
from benchmarks import report_ppo
from benchmarks.ppo_peers import Agent, cleanrl_style
from benchmarks.timing import OURS
from course_lib.algorithms import PPOConfig

SMALL = PPOConfig(total_steps=256, num_steps=32, num_epochs=1)


@pytest.fixture(scope="module")
def kept():
    return json.loads(bench.RESULTS.read_text(encoding="utf-8"))


def test_a_run_of_everyone_here_says_how_long_it_took_and_what_came_of_it():
    task = dataclasses.replace(bench.TASKS[0], num_envs=4, config=SMALL)
    for who in (OURS, bench.BY_HAND, bench.LOOP, bench.LOOP + bench.ALONE):
        row = bench.measure(task, who, 0)
        assert row["who"] == who and row["steps"] == 256 and row["cpu_seconds"] > 0
        assert row["solved_at"] is None
        parts = {"rollout", "advantages", "loss", "gradient, clip, Adam, log"}
        assert row.get("spent", dict.fromkeys(parts)).keys() == parts


def test_alone_the_rollouts_are_as_long():
    for task in bench.TASKS:
        alone = task.alone()
        assert alone.num_envs == 1
        batch = task.num_envs * task.config.num_steps
        assert alone.config.num_steps == batch
        # A whole number of rollouts, and of minibatches in each.
        assert task.config.total_steps % batch == 0
        assert batch % task.config.minibatch_size == 0


def test_the_loop_plays_whole_episodes_and_counts_its_steps():
    config = dataclasses.replace(SMALL, total_steps=1024)
    history = cleanrl_style("CartPole-v1", 4, config, seed=1)
    assert len(history.episodes) > 20
    assert all(one.episode_return == one.length for one in history.episodes)
    steps = [one.env_steps for one in history.episodes]
    assert steps == sorted(steps) and steps[-1] <= 1024
    # What was played is what was counted, but for the four unfinished ones.
    assert 0.7 * 1024 < sum(one.length for one in history.episodes) <= 1024
    names = dict(Agent(4, 2, (64, 64)).named_parameters())
    assert sum(one.numel() for one in names.values()) == 2 * (4 * 64 + 64 * 65) + 323


def test_an_interval_is_students():
    low, high = report_ppo.interval([1.0, 2.0, 3.0])
    assert (low, high) == pytest.approx((2 - 2.484, 2 + 2.484), abs=1e-3)


class TestKeptFigures:
    """The promises of speed and of what is reached, on the kept results."""

    @pytest.fixture
    def rows(self, kept):
        return kept["CartPole-v1"]["rows"]

    def test_everything_was_measured_as_it_is_listed(self, kept):
        assert list(kept) == [task.name for task in bench.TASKS]
        for task in bench.TASKS:
            part = kept[task.name]
            assert part["command"] == bench.COMMAND
            assert part["machine"]["threads"] == 1
            assert set(bench.PACKAGES) <= part["versions"].keys()
            runs = report_ppo.by_competitor(part["rows"])
            assert {
                who: tuple(r["seed"] for r in own) for who, own in runs.items()
            } == (task.seeds)
            assert {row["steps"] for row in part["rows"]} == {98_304}

    def test_the_peers_left_to_themselves_take_three_times_as_long(self, rows):
        for who in (bench.SB3, bench.LOOP):
            assert report_ppo.ratio(rows, who + bench.ALONE) >= 3
            assert report_ppo.ratio(rows, who) >= 1.7  # in as many environments

    def test_the_gradient_written_out_saves_a_quarter_or_more(self, rows):
        assert report_ppo.ratio(rows, bench.BY_HAND) <= 0.75

    def test_ten_seeds_cost_at_most_three(self, rows):
        assert report_ppo.many_seeds_ratio(rows) <= 3

    def test_each_of_our_agents_solves_cartpole_within_70_thousand_steps(self, rows):
        solved = [row["solved_at"] for row in rows if row["who"].startswith(OURS)]
        flat = [
            one for part in solved for one in (part if type(part) is list else [part])
        ]
        assert len(flat) == 16 and max(flat) <= 70_000

    @pytest.mark.parametrize("name", ["Acrobot-v1", "Pendulum-v1"])
    def test_our_mean_return_is_in_the_peers_interval_or_above(self, kept, name):
        runs = report_ppo.by_competitor(kept[name]["rows"])
        means = [row["last_tenth"] for row in runs[OURS]]
        low, _ = report_ppo.interval([row["last_tenth"] for row in runs[bench.SB3]])
        assert sum(means) / len(means) >= low
