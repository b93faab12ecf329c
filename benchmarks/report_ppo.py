"""The part of docs/BENCHMARKS.md on PPO, made of `benchmarks/results/ppo.json`."""

from __future__ import annotations

import math
import statistics
from typing import Any

OURS = "ours"
# Student's t, two-sided 95 %, by degrees of freedom.
_T95 = {1: 12.71, 2: 4.303, 3: 3.182, 4: 2.776}

CARTPOLE = """\
## PPO

Written by `python course.py bench ppo`. Everyone runs with the same numbers, in as many
environments, with equal steps, minibatches and updates; CPU seconds on one thread.

### CartPole

{where}

98,304 steps in 8 environments: 48 rollouts of 2,048 steps, 10 epochs of minibatches of
64, so 15,360 gradient steps. Solved is the step at which ten
episodes first averaged 475. With one environment the rollouts are as long, and a step
of the policy serves one environment in place of eight: Stable-Baselines3 runs so unless
it is told otherwise.

{table}

Where our time goes, in percent: {spent}.

"Loss" is the networks forward and the three terms, the policy's and the critic's each
in one compiled pass. A third of a gradient step is the two networks, there and back;
most of the rest is operations on a minibatch of 64, which take longer to start than to
do. "Gradient written out" is
`ppo(..., steps=CLOSED_FORM)`: the loss differentiated by hand as far as the networks'
outputs, all of it in one compiled pass.

{many}
"""

RETURNS = """\
### Acrobot and Pendulum

{where}

98,304 steps, three seeds each; the mean return of the episodes that ended in the last
tenth of the steps, with Stable-Baselines3's 95 % interval (Student's t). Settings after
rl-baselines3-zoo, the same for both, without its normalisation of observations and its
state-dependent exploration.

{table}
"""


REINFORCE = """\
## REINFORCE

Written by `python -m benchmarks.reinforce`, which `bench ppo` runs as well.

{where}

1,000 episodes of CartPole with a learned baseline, 200 updates of five episodes, CPU
seconds on one thread. Ours plays the five side by side; the plain loop has one
environment, a forward pass for each step, and two torch Adams. Who learns faster plays
longer, so the last column is what a thousand steps cost; the one before is the mean
return of the last 100 episodes of each seed.

{table}
"""


def reinforce_part(record: dict[str, Any]) -> str:
    """A line for each competitor, medians over the seeds."""
    lines = [
        "| who | seeds | CPU s | over ours | steps | last 100 | ms a 1,000 steps |",
        "|---|---|---|---|---|---|---|",
    ]
    rows = record["rows"]
    for who, own in by_competitor(rows).items():
        cost = statistics.median(
            1e6 * row["cpu_seconds"] / row["env_steps"] for row in own
        )
        lines.append(
            f"| {who} | {len(own)} | {seconds(own):.1f} | {ratio(rows, who):.2f} | "
            f"{statistics.median(row['env_steps'] for row in own):,.0f} | "
            f"{', '.join(str(row['last_hundred']) for row in own)} | {cost:.0f} |"
        )
    return REINFORCE.format(where=where(record), table="\n".join(lines))


def ppo_part(record: dict[str, dict[str, Any]]) -> str:
    """What was measured so far, task by task."""
    parts = []
    if "CartPole-v1" in record:
        cartpole = record["CartPole-v1"]
        parts.append(
            CARTPOLE.format(
                where=where(cartpole),
                table=cartpole_table(cartpole["rows"]),
                spent=spent(cartpole["rows"]),
                many=many_seeds(cartpole["rows"]),
            )
        )
    rest = [record[name] for name in record if name != "CartPole-v1"]
    if rest:
        rows = [row for part in rest for row in part["rows"]]
        parts.append(RETURNS.format(where=where(rest[0]), table=returns_table(rows)))
    return "\n".join(parts)


def where(part: dict[str, Any]) -> str:
    """On what it was measured, and when."""
    machine = part["machine"]
    load = machine["load"][0] if machine["load"] else "unknown"
    versions = ", ".join(f"{name} {is_}" for name, is_ in part["versions"].items())
    return f"{machine['processor']}, load {load}, {part['date']}, {versions}."


def cartpole_table(rows: list[dict[str, Any]]) -> str:
    """A line for each competitor: seconds, how many times ours, where solved."""
    lines = ["| who | seeds | CPU s | over ours | solved at |", "|---|---|---|---|---|"]
    for who, own in by_competitor(rows).items():
        solved = ", ".join(_thousands(row["solved_at"]) for row in own)
        lines.append(
            f"| {who} | {len(own)} | {seconds(own):.1f} | "
            f"{ratio(rows, who):.2f} | {solved} |"
        )
    return "\n".join(lines)


def returns_table(rows: list[dict[str, Any]]) -> str:
    """A line for each task and competitor: seconds, returns, the interval."""
    lines = [
        "| task | who | CPU s | returns | mean | interval |",
        "|---|---|---|---|---|---|",
    ]
    for task in dict.fromkeys(row["task"] for row in rows):
        for who, own in by_competitor([r for r in rows if r["task"] == task]).items():
            returns = [row["last_tenth"] for row in own]
            low, high = interval(returns)
            shown = "" if who == OURS else f"{low:.1f} to {high:.1f}"
            lines.append(
                f"| {task} | {who} | {seconds(own):.1f} | "
                f"{', '.join(f'{one:.1f}' for one in returns)} | "
                f"{statistics.mean(returns):.1f} | {shown} |"
            )
    return "\n".join(lines)


def many_seeds(rows: list[dict[str, Any]]) -> str:
    """The sentence on ten agents in one run."""
    (row,) = (row for row in rows if isinstance(row["solved_at"], list))
    solved = ", ".join(_thousands(one) for one in row["solved_at"])
    return (
        f"Ten seeds in one run take {row['cpu_seconds']:.1f} s, "
        f"{many_seeds_ratio(rows):.1f} times one; solved at {solved}."
    )


def many_seeds_ratio(rows: list[dict[str, Any]]) -> float:
    """CPU seconds of ten seeds in one run over those of one."""
    (row,) = (row for row in rows if isinstance(row["solved_at"], list))
    many: float = row["cpu_seconds"]
    return many / seconds(by_competitor(rows)[OURS])


def spent(rows: list[dict[str, Any]]) -> str:
    """The parts of our time."""
    own = by_competitor(rows)[OURS]
    total = sum(row["cpu_seconds"] for row in own)
    return ", ".join(
        f"{name} {100 * sum(row['spent'][name] for row in own) / total:.0f}"
        for name in own[0]["spent"]
    )


def by_competitor(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The runs of one seed each."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if "seed" in row:
            found.setdefault(row["who"], []).append(row)
    return found


def seconds(rows: list[dict[str, Any]]) -> float:
    """The median of their CPU seconds."""
    return statistics.median(row["cpu_seconds"] for row in rows)


def ratio(rows: list[dict[str, Any]], who: str) -> float:
    """A competitor's CPU seconds over ours."""
    own = by_competitor(rows)
    return seconds(own[who]) / seconds(own[OURS])


def interval(numbers: list[float]) -> tuple[float, float]:
    """95 % for the mean of a few."""
    middle = statistics.mean(numbers)
    if len(numbers) < 2:
        return -math.inf, math.inf
    spread = statistics.stdev(numbers) / math.sqrt(len(numbers))
    return middle - _T95[len(numbers) - 1] * spread, middle + _T95[
        len(numbers) - 1
    ] * spread


def _thousands(steps: int | None) -> str:
    return "never" if steps is None else f"{steps / 1000:.1f}k"
