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

from benchmarks.device_ppo import time_ppo
from benchmarks.device_rlhf import time_rlhf
from benchmarks.kernel_cases_gae import GAMMA, LAM, make_rollout, plain_loop
from benchmarks.kernel_cases_log_probs import gathered_log_probs
from benchmarks.timing import Run, rounded
from course_lib.envs import CartPole
from course_lib.kernels import gae, scan_engine, token_log_probs

Shapes = tuple[tuple[int, ...], ...]

BACKWARD = ", and backward"
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
    last, ended = given.last.to(device), given.terminated.to(device)
    options = {"terminated": ended, "gamma": GAMMA, "lam": LAM}
    runs: dict[str, Run] = {
        f"ours, engine {scan_engine(steps[0])}": lambda: gae(*steps, **options),
        "ours, engine torch": lambda: gae(*steps, **options, engine="torch"),
        "copy of as many bytes": _copy(21 * ended.numel(), device),
        "plain loop": lambda: plain_loop(*steps[:2], last, ended),
    }
    if shape[1] <= 128:  # the compiler unrolls the loop, which takes its time
        compiled = compiled_or_none(compiler, plain_loop, *steps[:2], last, ended)
        if compiled is not None:
            runs["plain loop, compiled"] = lambda: compiled(*steps[:2], last, ended)
    return runs


def compiled_or_none(
    compiler: Callable[..., Any], function: Callable[..., Any], *inputs: Tensor
) -> Callable[..., Any] | None:
    """Compile for these inputs; without a compiler that works, say why and go on."""
    try:
        compiled: Callable[..., Any] = compiler(function)
        compiled(*inputs)
    except Exception as problem:  # a missing C compiler, a GPU that is too old, ...
        reason = str(problem).strip().splitlines() or [type(problem).__name__]
        print(f"torch.compile left out: {reason[0]}")
        return None
    return compiled


def time_log_probs(
    device: torch.device,
    shapes: Shapes = LOGIT_SHAPES,
    compiler: Callable[..., Any] = torch.compile,
) -> Iterator[dict[str, Any]]:
    """Log-probabilities of tokens, forward, and forward with backward.

    The bound forward reads the logits once. With the way back it reads them twice and
    writes their gradient, since nothing of their size is kept in between.
    """
    for shape in shapes:
        logits = torch.randn(shape, device=device, requires_grad=True)
        tokens = torch.randint(shape[-1], shape[:-1], device=device)
        functions = {
            "ours": token_log_probs,
            "log_softmax and gather": gathered_log_probs,
        }
        compiled = compiled_or_none(compiler, gathered_log_probs, logits, tokens)
        if compiled is not None:
            functions["the same, compiled"] = compiled
        size = 4 * logits.numel()
        bounds = {"": _copy(size, device), BACKWARD: _copy(3 * size, device)}
        runs: dict[str, Run] = {}
        for way, bound in bounds.items():
            runs["copy of as many bytes" + way] = bound
        for name, function in functions.items():
            runs[name] = functools.partial(function, logits.detach(), tokens)
            runs[name + BACKWARD] = functools.partial(
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
            "steps_per_second": rounded(
                1e6 * num_envs * num_steps / times["rollout and gae"]
            ),
        }


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
    return {name: rounded(statistics.median(spent)) for name, spent in times.items()}


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


TIMINGS = (time_gae, time_log_probs, time_cartpole, time_ppo, time_rlhf)
