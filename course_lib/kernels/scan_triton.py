"""The recurrence on a GPU, in one launch; this module is loaded at first use.

One program walks a few rows from their end to their start, a block of steps at a
time. Within a block the steps are joined as a tree: two neighbouring stretches
y = b + a * y_next join into one, (a, b) o (a', b') = (a * a', b + a * b'), which is
associative (Blelloch 1990, "Prefix sums and their applications", section 1.4). Where
a stretch has a = 0, what follows is not looked at, by selection: 0 * inf would be
NaN. Rows and steps have a stride each, so that [B, T] and [T, B] may lie in memory.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# Rows times steps that one program holds at a time, and rows where these lie side by
# side in memory: then a block is as wide as one transaction.
_HELD = 1024
_SIDE_BY_SIDE = 32


@triton.jit
def _join(later_a, later_b, a, b):
    # Either may be 0 beside what is not finite: a product of many decays overflows.
    nothing = (a == 0) | (later_b == 0)
    return a * later_a, tl.where(nothing, b, b + a * later_b)


@triton.jit
def _scan_block(x, decay, carry, step):
    """Scan [rows, steps] with `carry` after it; return y and its first column."""
    product, y = tl.associative_scan((decay, x), 1, _join, reverse=True)
    carry = carry[:, None]
    y += tl.where((product == 0) | (carry == 0), 0.0, product * carry)
    return y, tl.sum(tl.where(step == 0, y, 0.0), 1)


@triton.jit
def scan_kernel(
    x, decay, init, y, num_rows, num_steps,
    x_row, x_step, decay_row, decay_step, y_row, y_step,
    ROWS: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """y_t = x_t + decay_t * y_{t+1}, y_T = init."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    step = tl.arange(0, STEPS)[None, :]
    carry = tl.load(init + row, row < num_rows, 0.0)
    row = row[:, None]
    blocks = tl.cdiv(num_steps, STEPS)
    for block in range(blocks):
        t = (blocks - 1 - block) * STEPS + step
        inside = (row < num_rows) & (t < num_steps)
        b = tl.load(x + row * x_row + t * x_step, inside, 0.0)
        # Beyond the end stands what hands the carry through unchanged.
        a = tl.load(decay + row * decay_row + t * decay_step, inside, 1.0)
        result, carry = _scan_block(b, a, carry, step)
        tl.store(y + row * y_row + t * y_step, result, inside)


@triton.jit
def gae_kernel(
    rewards, values, next_values, terminated, truncated, advantages, returns,
    num_rows, num_steps, in_row, in_step, out_row, out_step, gamma, gamma_lam,
    ROWS: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """A_t = delta_t + gamma * lam * A_{t+1} and A_t + V(s_t), in float32."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    step = tl.arange(0, STEPS)[None, :]
    carry = tl.zeros([ROWS], tl.float32)
    blocks = tl.cdiv(num_steps, STEPS)
    for block in range(blocks):
        t = (blocks - 1 - block) * STEPS + step
        inside = (row < num_rows) & (t < num_steps)
        place = row * in_row + t * in_step
        ended = tl.load(terminated + place, inside, 1) != 0
        cut = ended | (tl.load(truncated + place, inside, 1) != 0)
        value = tl.load(values + place, inside, 0.0).to(tl.float32)
        after = tl.load(next_values + place, inside, 0.0).to(tl.float32)
        error = tl.load(rewards + place, inside, 0.0).to(tl.float32) - value
        error += tl.where(ended | (gamma == 0), 0.0, gamma * after)
        decay = tl.where(cut, 0.0, gamma_lam)
        advantage, carry = _scan_block(error, decay, carry, step)
        place = row * out_row + t * out_step
        tl.store(advantages + place, advantage, inside)
        tl.store(returns + place, advantage + value, inside)


INTERPRETED = not isinstance(scan_kernel, triton.JITFunction)


def scan(x: Tensor, decay: float | Tensor, init: Tensor | None) -> Tensor:
    """Launch `scan_kernel` on x and decay [B, T] and init [B] of one dtype."""
    if not isinstance(decay, Tensor):
        decay = x.new_full((1, 1), decay).expand_as(x)
    init = x.new_zeros(len(x)) if init is None else init.contiguous()
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rows, steps = _tile(x)
    with torch.cuda.device_of(x):
        scan_kernel[(triton.cdiv(len(x), rows),)](
            x, decay, init, y, *x.shape, *x.stride(), *decay.stride(), *y.stride(),
            ROWS=rows, STEPS=steps,
        )  # fmt: skip
    return y


def gae(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    gamma: float,
    gamma_lam: float,
) -> tuple[Tensor, Tensor]:
    """Launch `gae_kernel` on [B, T]; both results are float32."""
    together = {
        x.stride() for x in (rewards, values, next_values, terminated, truncated)
    }
    inputs = [rewards, values, next_values, terminated, truncated]
    if len(together) > 1:
        inputs = [x.contiguous() for x in inputs]
    shape, device = rewards.shape, rewards.device
    advantages = torch.empty(shape, dtype=torch.float32, device=device)
    returns = torch.empty_like(advantages)
    rows, steps = _tile(inputs[0])
    with torch.cuda.device_of(rewards):
        gae_kernel[(triton.cdiv(len(rewards), rows),)](
            *inputs, advantages, returns, *shape, *inputs[0].stride(),
            *advantages.stride(), gamma, gamma_lam, ROWS=rows, STEPS=steps,
        )  # fmt: skip
    return advantages, returns


def _tile(x: Tensor) -> tuple[int, int]:
    """Rows and steps of one block, powers of two, for the way x lies in memory."""
    rows, steps = (triton.next_power_of_2(max(size, 1)) for size in x.shape)
    if x.stride(0) < x.stride(1):  # [T, B] in memory
        held = min(rows, _SIDE_BY_SIDE)
        return held, max(2, min(steps, _HELD // held))
    held = max(2, min(steps, _HELD))
    return min(rows, max(1, _HELD // held)), held
