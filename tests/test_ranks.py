"""Two processes learn as one that has both their batches."""

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as processes

from course_lib.algorithms import GroupConfig, RLHFConfig, group, ranks, rlhf
from course_lib.algorithms.group import group_loss, rlhf_group
from course_lib.algorithms.language_learner import LanguageLearner
from course_lib.algorithms.language_run import LanguageRun
from course_lib.algorithms.responses import ResponseBatch, Responses, update
from course_lib.algorithms.rlhf import rlhf_loss, rlhf_ppo
from course_lib.kernels import whiten
from course_lib.models import PromptedPolicy, Prompts, Transformer, TransformerConfig
from course_lib.train.checkpoint import load_checkpoint
from course_lib.train.log import read_log

pytestmark = pytest.mark.skipif(
    not dist.is_available() or sys.platform == "win32",
    reason="needs gloo, which these wheels of torch lack on Windows",
)
ROOT = Path(__file__).resolve().parents[1]
WORLD = 2
PPO = RLHFConfig(num_epochs=1, minibatch_size=4, ent_coef=0.1, value_clip=0.2)
PPO = replace(PPO, normalize_advantages="minibatch")
GROUP = GroupConfig(num_epochs=1, minibatch_size=4, kl="k3", clip_eps=0.2)
CASES = {
    "ppo": (PPO, rlhf_loss, ranks.share_of_tokens),
    "token_mean": (
        replace(GROUP, reduction="token_mean"),
        group_loss,
        ranks.share_of_tokens,
    ),
    "sequence_mean": (replace(GROUP, reduction="sequence_mean"), group_loss, None),
    "constant": (replace(GROUP, reduction="constant"), group_loss, None),
}


def batch():
    """8 responses; the second half is shorter than the first."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor([5, 4, 5, 3, 1, 2, 1, 1])
    draw = torch.randn(5, 8, 5, generator=generator)
    prompts = torch.randint(6, (8, 3), generator=generator)
    return ResponseBatch(
        tokens=torch.randint(6, (8, 5), generator=generator),
        mask=torch.arange(5) < lengths.unsqueeze(-1),
        old_log_probs=draw[0] * 0.1 - 1.8,
        ref_log_probs=draw[1] * 0.1 - 1.8,
        old_values=draw[2],
        advantages=draw[3],
        returns=draw[4],
        prompts=Prompts(prompts, torch.ones_like(prompts).bool(), torch.arange(8)),
    )


def rows_of(whole, rows):
    parts = {k: x[rows] for k, x in vars(whole).items() if x is not None}
    return ResponseBatch(**parts)


def gradients(name, rows, size):
    """What one step on those rows puts together, and the weights after it."""
    config, loss_fn, weight_fn = CASES[name]
    config = replace(config, minibatch_size=size)
    size = TransformerConfig(context=8, width=16, num_layers=1, num_heads=2)
    policy = PromptedPolicy(Transformer(6, size), eos_token=None)
    with torch.no_grad():
        policy.value_head.last.weight.fill_(0.3)
    learner = LanguageLearner(policy, config)

    def loss(policy, piece):
        return loss_fn(policy, piece, config=config)

    update(learner, rows_of(batch(), rows), config, loss, weight_fn)
    return learner.parameters.gradients.clone(), learner.parameters.values.detach()


RUNS = {
    "ppo": (rlhf, rlhf_ppo, RLHFConfig(gamma=0.9, value_clip=0.2, beta=0.2)),
    "token_mean": (group, rlhf_group, replace(GROUP, reduction="token_mean")),
    "sequence_mean": (group, rlhf_group, replace(GROUP, reduction="sequence_mean")),
}


def whole_update(name, rows):
    """The gradient and the record of an update on those rows, from responses on."""
    module, algorithm, config = RUNS[name]
    part, count = rows_of(batch(), rows), len(range(8)[rows])
    scores = torch.arange(8.0)[rows] % 3
    collected = Responses(
        tokens=part.tokens,
        mask=part.mask,
        old_log_probs=part.old_log_probs,
        old_values=part.old_values,
        ref_log_probs=part.ref_log_probs,
        scores=scores,
        rewards=scores,
        finished=torch.ones_like(scores, dtype=torch.bool),
        entropies=torch.ones_like(part.advantages),
        prompts=part.prompts,
    )
    # A length to which the gradient is cut, which is that of the whole one.
    config = replace(
        config, num_updates=1, num_epochs=1, batch_size=count, minibatch_size=count
    )
    config = replace(config, length=5, max_grad_norm=0.01)
    if algorithm is rlhf_group:
        config = replace(config, group_size=4)
    size = TransformerConfig(context=8, width=16, num_layers=1, num_heads=2)
    policy = PromptedPolicy(Transformer(6, size), eos_token=None)
    with torch.no_grad():
        policy.value_head.last.weight.fill_(0.3)
    run = LanguageRun(policy, config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "collect_responses", lambda *_: collected)
        algorithm(policy, None, config, run=run)
    (record,) = run.records
    return run.learner.parameters.gradients.clone(), record


def adapted(batch_size):
    """The price after one update, which began at a KL of 0."""
    size = TransformerConfig(context=8, width=16, num_layers=1, num_heads=2)
    policy = PromptedPolicy(Transformer(6, size), eos_token=None)
    config = RLHFConfig(num_updates=1, batch_size=batch_size, length=2)
    config = replace(config, kl_target=1.0, kl_horizon=100.0)
    run = LanguageRun(policy, config)
    rlhf_ppo(policy, lambda tokens, _: tokens[:, 0].float(), config, run=run)
    return run.beta


def work(rank, folder):
    """What each process does; the first one writes down what came of it."""
    torch.set_num_threads(1)
    address = f"file://{folder}/meet"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=WORLD)
    rows = slice(4 * rank, 4 * rank + 4)
    found = {name: gradients(name, rows, 4) for name in CASES}
    whole = batch()
    # The processes need not have equally long responses.
    width = (5, 2)[rank]
    part = ranks.whiten_over_ranks(
        whole.advantages[rows, :width], whole.mask[rows, :width]
    )
    padded = torch.nn.functional.pad(part, (0, 5 - width))
    found["whitened"] = ranks.gathered(padded)
    numbers = {"score": float(rank), "ratio_max": 1.0 + rank}
    found["numbers"] = ranks.average_numbers(numbers, torch.device("cpu"))
    learner = LanguageLearner(PromptedPolicy(Transformer(6), eos_token=None), PPO)
    found["random"] = learner.state_dict()["random"]
    drawn = torch.rand(3, generator=learner.generator)
    learner.load_state_dict(learner.state_dict() | {"random": found["random"]})
    assert torch.equal(torch.rand(3, generator=learner.generator), drawn)
    found["runs"] = {name: whole_update(name, rows) for name in RUNS}
    found["beta"] = adapted(batch_size=8 // WORLD)
    if rank == 0:
        torch.save(found, Path(folder) / "found.pt")
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What two processes came to."""
    folder = tmp_path_factory.mktemp("ranks")
    processes.spawn(work, (str(folder),), nprocs=WORLD)
    return torch.load(folder / "found.pt", weights_only=True)


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_is_that_of_one_process_with_the_whole_batch(found, name):
    """Tokens count alike wherever they stand; the halves hold 17 of them and 5."""
    expected, weights = gradients(name, slice(0, 8), 8)
    torch.testing.assert_close(found[name][0], expected, atol=1e-6, rtol=1e-5)
    assert expected.abs().max() > 1e-3
    torch.testing.assert_close(found[name][1], weights, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", RUNS)
def test_an_update_is_that_of_one_process_with_all_responses(found, name):
    """From rewards over advantages to the clipped gradient, as the algorithms do it."""
    gradients, record = found["runs"][name]
    expected, alone = whole_update(name, slice(0, 8))
    assert expected.norm() == pytest.approx(0.01, rel=1e-3)
    torch.testing.assert_close(gradients, expected, atol=1e-7, rtol=1e-4)
    seen = ["score", "kl", "entropy", "length", "responses"]
    seen += ["grad_norm", "learning_rate"]
    if name != "sequence_mean":
        seen += ["policy_loss", "approx_kl", "clip_frac", "clip_frac_active"]
        seen += ["value_loss", "explained_variance"] if name == "ppo" else ["kl_loss"]
    for number in seen:
        assert record[number] == pytest.approx(alone[number], rel=1e-4), number


def test_averaging_without_the_share_of_tokens_would_be_another_gradient():
    """So the test above would see it: the mean of two means over 17 and 5 tokens."""
    halves = [gradients("token_mean", slice(a, a + 4), 4)[0] for a in (0, 4)]
    expected, _ = gradients("token_mean", slice(0, 8), 8)
    assert ((halves[0] + halves[1]) / 2 - expected).abs().max() > 1e-3


def test_advantages_are_whitened_over_all_processes(found):
    """Error 20: per process, how many there are would change the algorithm."""
    whole = batch()
    mask = whole.mask.clone()
    expected = whiten(whole.advantages, mask)
    torch.testing.assert_close(found["whitened"].flatten(0, 1), expected)


def test_what_is_logged_is_a_mean_over_processes_and_a_maximum(found):
    assert found["numbers"] == {"score": 0.5, "ratio_max": 2.0}


def test_the_price_of_kl_is_adapted_by_the_responses_of_all_processes(found):
    """By its own part alone, two processes would take twice as long to the target."""
    assert found["beta"] == adapted(batch_size=8) == pytest.approx(0.1 * (1 - 0.016))


def test_each_process_has_random_numbers_of_its_own_and_keeps_them(found):
    assert len(found["random"]) == WORLD
    assert not torch.equal(*found["random"])


def test_alone_nothing_is_done():
    x, mask = torch.randn(2, 3), torch.tensor([[True, True, False]] * 2)
    assert ranks.world_size() == 1 and ranks.rank() == 0
    assert ranks.sum_over_ranks(x) is x and ranks.share_of_tokens(mask) == 1.0
    assert torch.equal(ranks.whiten_over_ranks(x, mask), whiten(x, mask))
    assert torch.equal(ranks.gathered(x), x[None])
    ranks.wait_for_all()


def torchrun(folder, *arguments):
    """Its exit status, and what it said."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2"]
    command += ["--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0"]
    ended = subprocess.run(
        [*command, "-m", "course_lib.train", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        encoding="utf-8",
        timeout=240,
        check=False,
    )
    return ended.returncode, ended.stdout, ended.stderr


def both_started(folder, *arguments):
    """The two processes that torchrun would start, to be killed one by one."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    shared |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return [
        subprocess.Popen(
            [sys.executable, "-m", "course_lib.train", *arguments],
            cwd=folder,
            env={**os.environ, **shared, "RANK": rank, "LOCAL_RANK": rank},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for rank in ("0", "1")
    ]


TINY = ["--model.context=16", "--model.width=16", "--model.num_layers=1"]
TINY += ["--model.num_heads=2", "--task.levels=[add-1]", "--run.device=cpu"]
TINY += ["--run.progress=false", "--algorithm.batch_size=16", "--algorithm.length=3"]
TINY += ["--algorithm.minibatch_size=8", "--run.checkpoint_every=2"]


@pytest.mark.slow
def test_two_processes_that_are_killed_and_started_again_end_alike(tmp_path):
    pytest.importorskip("jsonargparse")
    from course_lib.train.program import main

    options = ["ppo-lm", *TINY, "--algorithm.num_updates=24"]
    status, said, complained = torchrun(tmp_path, *options, "--run.out=whole")
    assert status == 0, complained
    assert said.count("24 updates") == 1  # one of the two speaks
    log = read_log(tmp_path / "whole")
    assert [one["responses"] for one in log[:3]] == [16.0, 32.0, 48.0]
    path = tmp_path / "killed" / "metrics.jsonl"
    two = both_started(tmp_path, *options, "--run.out=killed")
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and two[0].poll() is None:
        if path.exists() and path.read_bytes().count(b"\n") >= 5:
            break
        time.sleep(0.002)
    for process in two:
        process.kill()
        process.wait(timeout=60)
    assert len(read_log(path.parent)) < 24
    status, _, complained = torchrun(tmp_path, *options, "--run.out=killed")
    assert status == 0, complained
    ends = [
        load_checkpoint(tmp_path / name / "checkpoint.pt")
        for name in ("whole", "killed")
    ]
    learners = [one["state"]["learner"] for one in ends]
    assert torch.equal(*[one["random"] for one in learners])
    for name, weights in learners[0]["model"].items():
        assert torch.equal(learners[1]["model"][name], weights)
    assert json.loads(ends[0]["settings"])["algorithm"]["batch_size"] == 16
    # One process has no random numbers for two.
    assert main([*options, f"--run.out={tmp_path / 'whole'}"]) == 1


@pytest.mark.slow
def test_one_that_fails_ends_all_with_its_message(tmp_path):
    pytest.importorskip("jsonargparse")
    options = ["ppo-lm", *TINY, "--algorithm.batch_size=15"]
    status, _, complained = torchrun(tmp_path, *options)
    assert status != 0
    assert "algorithm.batch_size must divide evenly among 2" in complained
    assert "rank 1: error" in complained or "rank 0: error" in complained
    _, _, complained = torchrun(tmp_path, "sft", *TINY[:6])
    assert "sft learns in one process, got 2" in complained
