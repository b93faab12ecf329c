"""A small piece of the benchmark of losses: same results, and the promised memory."""

import torch

from benchmarks import kernel_cases_losses as bench


def draw(shape):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(shape, generator=generator)
    return logits, torch.randint(shape[-1], shape[:-1], generator=generator)


def test_the_peers_compute_what_ours_does():
    logits, tokens = draw((3, 5, 40))
    expected = bench.token_log_probs(logits, tokens)
    for peer in (bench.log_softmax_gather, bench.logsumexp_by_rows):
        torch.testing.assert_close(peer(logits, tokens), expected)
    x, mask = logits[..., 0], tokens < 30
    theirs = bench.boolean_whiten(x, mask)
    ours = bench.whiten(x, mask, unbiased=True)
    torch.testing.assert_close(theirs.masked_fill(~mask, 0.0), ours)
    scores, groups = logits[0, 0], torch.arange(40) % 7
    for kernel, loop in (
        (bench.leave_one_out_advantages, bench.leave_one_out_loop),
        (bench.group_relative_advantages, bench.group_relative_loop),
    ):
        torch.testing.assert_close(
            kernel(scores, groups), loop(scores, groups), rtol=1e-4, atol=1e-5
        )


def test_log_probs_take_a_cacheful_forward_and_one_gradient_back():
    logits, tokens = draw((2, 64, 50257))
    size = logits.numel() * 4
    cacheful = 2 * 2**20  # a chunk, and what its softmax works with
    assert bench.extra_memory(lambda: bench.token_log_probs(logits, tokens)) < cacheful
    view = logits[:, :-1]  # the shift that everyone makes is no copy
    assert bench.extra_memory(
        lambda: bench.token_log_probs(view, tokens[:, 1:])
    ) < cacheful  # fmt: skip
    assert bench.extra_memory(lambda: bench.log_softmax_gather(logits, tokens)) >= size
    logits.requires_grad_()

    def both():
        bench.token_log_probs(logits, tokens).sum().backward()
        logits.grad = None

    assert size <= bench.extra_memory(both) < size + cacheful


def test_every_case_names_a_peer_that_it_runs():
    small = [case for case in bench.cases() if case.shape[-1] < 5000]
    assert len(bench.cases()) == 9
    for case in small:
        runs = case.make()
        assert next(iter(runs)) == bench.OURS and case.against in runs
        for run in runs.values():
            run()
