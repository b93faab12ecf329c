"""What a person may get wrong on the command line is said in words."""

import json
import re
from pathlib import Path

import pytest
import torch

from course_lib.algorithms import GroupConfig, RLHFConfig
from course_lib.algorithms.prompts import PromptSource
from course_lib.envs import CharacterTokenizer, Problem, chosen_device
from course_lib.train.program import main

pytest.importorskip("jsonargparse")

TINY = ["--model.context", "16", "--model.width", "16", "--model.num_layers", "1"]
TINY += ["--model.num_heads", "2", "--task.levels", "[add-1]", "--run.device", "cpu"]
TINY += ["--run.progress", "false"]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch, one_thread):
    monkeypatch.chdir(tmp_path)


def refusal(capsys, *arguments):
    """What is said, on one line, where a program ends with 1 or 2."""
    try:
        code = main(arguments)
    except SystemExit as ended:
        code = ended.code
    said = capsys.readouterr().err
    assert code in (1, 2) and said.startswith("error: "), said
    assert "Traceback" not in said and "did you mean None" not in said
    return " ".join(said.split())


VALUES = """
ppo-lm algorithm.num_updates 0 | num_updates must be at least 1, got 0
ppo-lm algorithm.num_updates -1 | num_updates must be at least 1, got -1
ppo-lm algorithm.num_epochs 0 | num_epochs must be at least 1, got 0
ppo-lm algorithm.batch_size 0 | batch_size must be at least 1, got 0
grpo algorithm.minibatch_size 0 | minibatch_size must be at least 1, got 0
grpo algorithm.group_size 1 | group_size must be at least 2 with baseline='standardized'
grpo algorithm.group_size 0 | group_size must be at least 1, got 0
grpo algorithm.length 0 | length must be at least 1, got 0
ppo-lm algorithm.learning_rate -1 | learning_rate must be at least 0, got -1
grpo algorithm.learning_rate -1 | learning_rate must be at least 0, got -1
sft algorithm.learning_rate -1 | learning_rate must be at least 0, got -1
sft algorithm.num_epochs 0 | num_epochs must be at least 1, got 0
reward-model algorithm.minibatch_size 0 | minibatch_size must be at least 1, got 0
ppo-env algorithm.learning_rate -1 | learning_rate must be at least 0, got -1
reinforce algorithm.learning_rate -1 | learning_rate must be at least 0, got -1
ppo-lm algorithm.clip_eps 0 | clip_eps must be above 0, got 0
grpo algorithm.clip_eps 0 | clip_eps must be None or above 0, got 0
ppo-env algorithm.clip_eps -1 | clip_eps must be at least 0, got -1
ppo-lm algorithm.vf_coef -1 | vf_coef must be at least 0, got -1
ppo-env algorithm.vf_coef -1 | vf_coef must be at least 0, got -1
ppo-lm algorithm.gamma 1.5 | gamma must lie in [0, 1], got 1.5
ppo-lm algorithm.lam -.5 | lam must lie in [0, 1], got -0.5
ppo-env algorithm.gamma 2 | gamma must lie in [0, 1], got 2
reinforce algorithm.gamma 2 | gamma must lie in [0, 1], got 2
rlhf-toy algorithm.lam 2 | lam must lie in [0, 1], got 2
rlhf-toy toy.vocab_size 0 | vocab_size must be at least 1, got 0
reinforce env.num_envs 0 | num_envs must be at least 1, got 0
sft run.threads 0 | threads must be at least 1, got 0
ppo-env run.eval_every 0 | eval_every must be at least 1, got 0
ppo-env run.checkpoint_every 0 | checkpoint_every must be at least 1, got 0
ppo-env run.device gpu | device must be auto, cpu, cuda or mps, got 'gpu'
sft run.seed -1 | seed must lie in 0..2^32 - 1, got -1
ppo-lm policy.value_hidden 0 | value_hidden must be at least 1, got 0
ppo-env run.out '' | out must not be empty, got ''
evaluate device gpu | device must be auto, cpu, cuda or mps, got 'gpu'
evaluate episodes 0 | episodes must be at least 1, got 0
evaluate show -1 | show must be at least 0, got -1
sft stop.accuracy 1.5 | accuracy must lie in [0, 1], got 1.5
reward-model pairs.num_pairs 0 | num_pairs must be at least 1, got 0
reward-model pairs.num_pairs 1 | pairs.num_pairs must leave pairs to learn from
reward-model pairs.scale 0 | scale must be above 0 and finite, got 0
sft task.levels [] | levels must be some of add-1, add-sub-1, times-1, add-2-1, add-2-2
sft task.levels [add-1,add-1] | each once, got ['add-1', 'add-1']
sft task.levels [add-9] | levels must be one of ('add-1', 'add-sub-1',
sft task.held_out 1 | held_out must leave something to learn from
ppo-lm task.curriculum .5 | it must be 0 with one level, got 0.5
ppo-lm start.reward_model x | reward_model is only heard with reward_source=reward_model
"""


@pytest.mark.parametrize("line", VALUES.strip().splitlines())
def test_a_value_that_means_nothing_is_refused_with_its_setting(line, capsys):
    given, words = line.split(" | ")
    program, setting, value = given.split()
    said = refusal(capsys, program, f"--{setting}", value.strip("'"))
    assert words in said
    assert not list(Path().iterdir()) or program == "reward-model"


def test_capped_responses_are_not_left_out_and_bootstrapped(capsys):
    both = ["--algorithm.mask_capped", "true", "--algorithm.bootstrap_capped", "true"]
    said = refusal(capsys, "ppo-lm", *both)
    assert "bootstrap_capped must be False with mask_capped" in said


def test_a_group_of_one_is_alone_without_a_baseline():
    assert GroupConfig(baseline="none", group_size=1).group_size == 1
    assert RLHFConfig(clip_eps=float("inf")).clip_eps > 1


@pytest.mark.parametrize("name", ["cuda", "mps", "cuda:64"])
def test_a_device_that_is_not_there_is_named(name, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: name == "cuda:64")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ValueError, match=f"this machine has, got '{name}'"):
        chosen_device(name)
    assert chosen_device("cpu").type == "cpu"


def few(program):
    sizes = ["--algorithm.num_epochs", "1"]
    if program == "ppo-lm":
        sizes += ["--algorithm.num_updates", "1", "--algorithm.batch_size", "8"]
    return [program, *TINY, *sizes]


def words_of(letters):
    return ["--task.problems", "words", "--model.context", "160"] + (
        ["--task.alphabet", letters] if letters else []
    )


def test_a_start_of_another_alphabet_is_named_with_both_tasks(capsys):
    arithmetic = ["--model.context", "160"]
    assert main([*few("sft"), *arithmetic, "--run.out", "s"]) == 0
    words = [*few("ppo-lm"), *words_of(None), "--run.out", "p"]
    said = refusal(capsys, *words, "--start.policy", "s")
    assert "task.alphabet must be that of s" in said and "--task.alphabet" in said
    assert "task.problems=arithmetic and so the arithmetic one" in said
    assert "task.problems=words and so the printable one" in said
    pairs = ["--pairs.num_pairs", "8", "--run.out", "r"]
    assert main([*few("reward-model"), *arithmetic, *pairs]) == 0
    judged = ["--start.reward_source", "reward_model", "--start.reward_model", "r"]
    assert "task.alphabet must be that of r" in refusal(capsys, *words, *judged)


def test_a_policy_of_sums_goes_on_with_sums_from_files(capsys):
    """Only the questions are read, and the verifier wants a number."""
    assert main(few("sft")) == 0
    assert main(["prepare-prompts", "--task.levels", "[times-1]"]) == 0
    files = ["--task.problems", "files", "--task.train_file", "prompts/train.jsonl"]
    files += ["--task.test_file", "prompts/test.jsonl"]
    files += ["--task.alphabet", "arithmetic"]
    assert main([*few("ppo-lm"), *files, "--start.policy", "runs/sft"]) == 0
    assert main(["evaluate", "--checkpoint", "runs/ppo-lm", "--show", "0"]) == 0
    # To be taught them, the mark of a file's answers would have to be written.
    said = refusal(capsys, *few("sft"), *files, "--run.out", "b")
    assert re.search(r"train\.jsonl, line 1, answer: text must be .* got '#'", said)


def test_a_character_without_a_token_is_named_with_its_line(capsys):
    for name, question in (("a", "1+1?"), ("b", "Was macht 1 + 1, grüßt er?")):
        line = {"question": question, "answer": "#### 2"}
        text = json.dumps({"question": "1?", "answer": "#### 1"}) + "\n\n"
        text += json.dumps(line, ensure_ascii=False) + "\n"
        Path(f"{name}.jsonl").write_text(text, encoding="utf-8")
    files = ["--task.problems", "files", "--task.train_file", "a.jsonl"]
    said = refusal(capsys, *few("sft"), *files, "--task.test_file", "b.jsonl")
    assert "b.jsonl, line 3, question: text must be written in" in said
    assert "got 'ü'" in said
    with pytest.raises(ValueError, match=r"problem '1 x', question: .* got 'x' at 2"):
        PromptSource([[Problem("1 x", "1", "1")]], CharacterTokenizer("1 "))
