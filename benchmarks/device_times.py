"""Times on a CUDA device, by its own events.

Every function takes the device, its shapes and the compiler as arguments, so that a
test can run it small, on a CPU and without a compiler.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.kernel_cases_gae import GAMMA, LAM, make_rollout
from course_lib import kernels
from course_lib.envs import CartPole
from course_lib.kernels import gae, scan_engine

Run = Callable[[], object]
Shapes = tuple[tuple[int, ...], ...]

ROUNDS = 20
_SHORTEST_ROUND = 2000.0  # microseconds
GAE_SHAPES: Shapes = ((64, 512), (256, 1024), (4096, 128), (1024, 4096))
LOGIT_SHAPES: Shapes = ((8, 256, 50257), (64, 128, 32000))
CARTPOLE_SHAPES: Shapes = ((64, 128), (4096, 128), (65536, 32))


def time_gae(
    device: torch.device,
    shapes: Shapes = GAE_SHAPES,
    compiler: Callable[..., Any] = torch.compile,
) -> Iterator[dict[str, Any]]:
    """GAE with ends; what it reads and writes is 21 bytes for each step."""
    for shape in shapes:
        times = time_on_device(_gae_runs(shape, device, compiler), device)
        yield {"name": "gae", "shape": list(shape), "microseconds": times}


def _gae_runs(
    shape: tuple[int, ...], device: torch.device, compiler: Callable[..., Any]
) -> dict[str, Run]:
    given = make_rollout(shape)
    steps = [x.to(device) for x in (given.rewards, given.values, given.next_values)]
    ended = given.terminated.to(device)
    options = {"terminated": ended, "gamma": GAMMA, "lam": LAM}
    runs: dict[str, Run] = {
        f"ours, engine {scan_engine(steps[0])}": lambda: gae(*steps, **options),
        "ours, engine torch": lambda: gae(*steps, **options, engine="torch"),
        "copy of as many bytes": _copy(21 * ended.numel(), device),
        "plain loop": lambda: plain_loop(*steps, ended),
    }
    if shape[1] <= 128:  # the compiler unrolls the loop, which takes its time
        compiled = compiler(plain_loop)
        runs["plain loop, compiled"] = lambda: compiled(*steps, ended)
    return runs


def time_log_probs(
    device: torch.device,
    shapes: Shapes = LOGIT_SHAPES,
    compiler: Callable[..., Any] = torch.compile,
) -> Iterator[dict[str, Any]]:
    """Log-probabilities of tokens, forward, and forward with backward."""
    functions = {
        "ours": kernels.token_log_probs,
        "log_softmax and gather": gathered_log_probs,
        "the same, compiled": compiler(gathered_log_probs),
    }
    for shape in shapes:
        logits = torch.randn(shape, device=device, requires_grad=True)
        tokens = torch.randint(shape[-1], shape[:-1], device=device)
        runs = {"copy of as many bytes": _copy(4 * logits.numel(), device)}
        for name, function in functions.items():
            runs[name] = functools.partial(function, logits.detach(), tokens)
            runs[name + ", and backward"] = functools.partial(
                _there_and_back, function, logits, tokens
            )
        times = time_on_device(runs, device)
        yield {"name": "token_log_probs", "shape": list(shape), "microseconds": times}


def _there_and_back(
    function: Callable[[Tensor, Tensor], Tensor], logits: Tensor, tokens: Tensor
) -> object:
    return torch.autograd.grad(function(logits, tokens).sum(), logits)


def time_cartpole(
    device: torch.device,
    shapes: Shapes = CARTPOLE_SHAPES,
    compiler: Callable[..., Any] = torch.compile,
) -> Iterator[dict[str, Any]]:
    """A rollout with a small actor-critic and its advantages, all on the device."""
    for num_envs, num_steps in shapes:
        rollout = cartpole_rollout(num_envs, num_steps, device)
        times = time_on_device({"rollout and gae": rollout}, device)
        yield {
            "name": "cartpole",
            "shape": [num_envs, num_steps],
            "microseconds": times,
            "steps_per_second": _rounded(
                1e6 * num_envs * num_steps / times["rollout and gae"]
            ),
        }


def plain_loop(
    rewards: Tensor, values: Tensor, after: Tensor, ended: Tensor
) -> tuple[Tensor, Tensor]:
    """GAE with one step of all rows at a time."""
    errors = rewards + GAMMA * torch.where(ended, 0.0, after) - values
    decays = GAMMA * LAM * (~ended).float()
    later, columns = torch.zeros_like(values[:, 0]), []
    for t in range(rewards.shape[1] - 1, -1, -1):
        later = errors[:, t] + decays[:, t] * later
        columns.append(later)
    advantages = torch.stack(columns[::-1], dim=1)
    return advantages, advantages + values


def gathered_log_probs(logits: Tensor, tokens: Tensor) -> Tensor:
    """The usual form, which makes a second tensor of the logits' size."""
    return logits.log_softmax(-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def cartpole_rollout(
    num_envs: int, num_steps: int, device: torch.device
) -> Callable[[], tuple[Tensor, Tensor]]:
    """Make a function that collects [num_envs, num_steps] and returns GAE of it."""
    env = CartPole(num_envs, seeds=0, device=device)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 3)).to(device)
    generator = torch.Generator(device).manual_seed(0)
    observations = env.reset()

    @torch.no_grad()
    def rollout() -> tuple[Tensor, Tensor]:
        nonlocal observations
        columns: list[tuple[Tensor, ...]] = []
        for _ in range(num_steps):
            *_, value = out = net(observations).unbind(-1)
            chances = torch.stack(out[:2], -1).softmax(-1)
            actions = torch.multinomial(chances, 1, generator=generator).squeeze(-1)
            moved = env.step(actions)
            after = net(moved.next_observations)[:, 2]
            ends = moved.terminated, moved.truncated
            columns.append((moved.rewards, value, after, *ends))
            observations = moved.observations
        *steps, ended, cut = (torch.stack(x, 1) for x in zip(*columns, strict=True))
        return gae(*steps, terminated=ended, truncated=cut, gamma=GAMMA, lam=LAM)

    return rollout


def time_on_device(runs: dict[str, Run], device: torch.device) -> dict[str, float]:
    """Median microseconds of one call, the competitors in turns."""
    calls = {}
    for name, run in runs.items():
        run()  # compiles, uncounted
        run()
        calls[name] = max(1, int(_SHORTEST_ROUND / _one_round(run, 1, device)))
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            times[name].append(_one_round(run, calls[name], device))
    return {name: _rounded(statistics.median(spent)) for name, spent in times.items()}


def _one_round(run: Run, calls: int, device: torch.device) -> float:
    if device.type == "cpu":
        began = time.process_time()
        for _ in range(calls):
            run()
        return max(1e6 * (time.process_time() - began) / calls, 1e-3)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(calls):
        run()
    end.record()
    torch.cuda.synchronize()
    return max(1e3 * start.elapsed_time(end) / calls, 1e-3)


def _copy(num_bytes: int, device: torch.device) -> Run:
    """Read and write as many bytes in all, by copying half of them."""
    source = torch.zeros(max(num_bytes // 2, 1), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


TIMINGS = (time_gae, time_log_probs, time_cartpole)
