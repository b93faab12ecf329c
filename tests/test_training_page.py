"""docs/TRAINING.md: its commands are read, its code runs, its numbers are logged."""

import re
import shlex
from pathlib import Path

import pytest
import torch

from course_lib.train.checkpoint import load_run
from course_lib.train.log import read_log
from course_lib.train.program import PROGRAMS, main
from course_lib.train.settings import read_settings
from course_lib.train.starts import load_policy

pytest.importorskip("jsonargparse")
ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "TRAINING.md").read_text(encoding="utf-8")
CODE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
TINY = ["--model.context", "16", "--model.width", "16", "--model.num_layers", "1"]
TINY += ["--model.num_heads", "2", "--task.levels", "[add-1]", "--run.device", "cpu"]
TINY += ["--run.progress", "false"]
FEW = ["--algorithm.num_updates", "2", "--algorithm.batch_size", "16"]
PROGRAMS_ON_PROMPTS = {
    "ppo-lm": FEW,
    "grpo": FEW,
    "sft": ["--algorithm.num_epochs", "1"],
    "reward-model": ["--algorithm.num_epochs", "1", "--pairs.num_pairs", "64"],
}


def below(heading):
    return PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def first_column(part):
    rows = [line.split("|")[1] for line in part.splitlines() if line[:1] == "|"]
    return [name for row in rows[2:] for name in re.findall(r"`([^`]+)`", row)]


def test_the_first_commands_are_those_of_the_programs(monkeypatch):
    monkeypatch.chdir(ROOT)
    lines = below("The first five minutes").split("```text\n")[1].split("```")[0]
    asked = [shlex.split(line) for line in lines.strip().splitlines()]
    assert len(asked) == 4
    for words in asked:
        assert words[:3] == ["python", "course.py", "train"]
        name, values = read_settings(PROGRAMS, words[3:])
        PROGRAMS[name].configs(values)


def test_every_program_is_in_the_table():
    assert set(first_column(below("The first five minutes"))) == set(PROGRAMS)


def test_every_number_of_a_log_is_explained_and_no_other(tmp_path):
    logged = set()
    for program, few in PROGRAMS_ON_PROMPTS.items():
        out = str(tmp_path / program)
        assert main([program, *TINY, *few, "--run.out", out]) == 0
        logged |= {name for record in read_log(out) for name in record}
    assert logged == set(first_column(below("What the log says")))


def test_a_run_of_the_programs_is_gone_on_with_in_python(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = ["--run.out", "runs/smoke/sft", "--algorithm.num_epochs", "1"]
    assert main(["sft", *TINY, *out]) == 0
    (call,) = re.findall(r"`course_lib\.train\.starts\.(load_policy\(.*?\))`", PAGE)
    policy = eval(call, {"load_policy": load_policy})
    state = load_run(Path("runs/smoke/sft/checkpoint.pt"))["state"]
    for name, weight in policy.state_dict().items():
        assert torch.equal(weight, state["learner"]["model"][name])


def test_a_reward_of_ones_own_is_learnt(capsys, one_thread):
    exec(compile(CODE[0], "TRAINING.md", "exec"), {})
    before, after = map(float, capsys.readouterr().out.split())
    assert before > 4 and after < 2  # 1 is the least: EOS alone


def test_a_hugging_face_model_answers(monkeypatch, capsys):
    """With a model and a tokenizer that need no network, of the same calls."""
    transformers = pytest.importorskip("transformers")

    class Tokenizer:
        eos_token_id = 5

        def apply_chat_template(self, chat, *, add_generation_prompt, return_dict):
            assert add_generation_prompt and return_dict is False
            return [len(chat[0]["content"]) % 4, 1]

        def batch_decode(self, tokens, skip_special_tokens):
            return [" ".join(map(str, row)) for row in tokens.tolist()]

    sizes = {"vocab_size": 6, "n_positions": 64, "n_embd": 32, "n_layer": 2}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, n_head=2))
    monkeypatch.setattr(
        transformers.AutoTokenizer, "from_pretrained", lambda name: Tokenizer()
    )
    monkeypatch.setattr(
        transformers.AutoModelForCausalLM, "from_pretrained", lambda name: model
    )
    exec(compile(CODE[1], "TRAINING.md", "exec"), {})
    assert capsys.readouterr().out.count("'") == 4  # two texts


def test_all_python_on_the_page_is_run_here():
    assert len(CODE) == 2


def test_what_it_points_to_is_there():
    for path, _, heading in re.findall(r"\]\(([\w./]+)(#([\w-]+))?\)", PAGE):
        text = (ROOT / "docs" / path).read_text(encoding="utf-8")
        names = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        assert not heading or heading in [n.lower().replace(" ", "-") for n in names]
    for path in re.findall(r"configs/\w+/(?:[\w-]+\.yaml)?", PAGE):
        assert (ROOT / path).exists(), path
