"""REINFORCE beside a plain loop: like with like, and what was kept holds."""

import dataclasses
import json

import pytest

from benchmarks import reinforce as bench
from benchmarks import report_ppo
from benchmarks.timing import OURS

SMALL = dataclasses.replace(bench.CONFIG, num_episodes=2 * bench.ENVS)


@pytest.mark.parametrize("who", bench.COMPETITORS)
def test_each_of_them_plays_as_many_episodes(who):
    history = bench.COMPETITORS[who](SMALL, 0)
    assert len(history.episodes) == 10
    assert all(one.episode_return == one.length for one in history.episodes)
    assert history.episodes[-1].env_steps <= sum(e.length for e in history.episodes)
    row = bench.measure(who, SMALL, 0)
    assert row["who"] == who and row["cpu_seconds"] > 0 and row["env_steps"] > 100


def test_the_plain_loop_learns():
    config = dataclasses.replace(bench.CONFIG, num_episodes=150)
    returns = bench.plain_loop(config, 0).returns()
    assert sum(returns[-20:]) / 20 > 2.5 * sum(returns[:20]) / 20


def test_ours_takes_at_most_half_of_the_kept_times():
    rows = json.loads(bench.RESULTS.read_text(encoding="utf-8"))["rows"]
    assert report_ppo.ratio(rows, bench.LOOP) >= 2
    for own in report_ppo.by_competitor(rows).values():
        assert [row["seed"] for row in own] == list(bench.SEEDS)
        assert all(row["last_hundred"] > 400 for row in own)
    assert OURS in report_ppo.by_competitor(rows)
