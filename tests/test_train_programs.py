"""The training programs: what they leave behind, and that a killed one goes on."""

import gc
import itertools
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from filelock import FileLock

from course_lib.algorithms.language_learner import ModelLearner
from course_lib.algorithms.learner import Learner
from course_lib.exact import uniform_optimum
from course_lib.models import TransformerConfig
from course_lib.train import supervised
from course_lib.train.checkpoint import load_checkpoint, save_checkpoint
from course_lib.train.evaluate import wilson_interval
from course_lib.train.log import Log, read_log
from course_lib.train.picture import Curve, svg, ticks
from course_lib.train.plot import mean_curve
from course_lib.train.program import PROGRAMS, main
from course_lib.train.reinforced import StartConfig, judge
from course_lib.train.session import Session
from course_lib.train.starts import load_reward_model
from course_lib.train.tasks import TaskConfig, make_sources

pytest.importorskip("jsonargparse")

ROOT = Path(__file__).resolve().parents[1]
SMOKE = ROOT / "configs" / "smoke"
TINY = ["--model.context", "16", "--model.width", "16", "--model.num_layers", "1"]
TINY += ["--model.num_heads", "2", "--task.levels", "[add-1]", "--run.device", "cpu"]
TINY += ["--run.progress", "false"]
RLHF = ["--algorithm.num_updates", "8", "--algorithm.batch_size", "16"]
RLHF += ["--algorithm.length", "3", "--algorithm.minibatch_size", "8"]
RLHF += ["--run.checkpoint_every", "3", "--run.eval_every", "4"]

SELDOM = ["--run.checkpoint_every", "9"]

CARTPOLE = {
    "reinforce": ["--env.num_envs", "2", "--algorithm.num_episodes", "16"],
    "ppo-env": ["--env.num_envs", "2", "--algorithm.total_steps", "512"],
}
CARTPOLE["ppo-env"] += ["--algorithm.num_steps", "32", "--algorithm.minibatch_size"]
CARTPOLE["ppo-env"] += ["32", "--algorithm.num_epochs", "2", "--algorithm.penalty", "1"]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch, one_thread):
    monkeypatch.chdir(tmp_path)


def run(program, *arguments):
    assert main([program, *arguments]) == 0


def without_time(folder):
    return [
        {k: v for k, v in record.items() if k != "cpu_seconds"}
        for record in read_log(folder)
    ]


def same(a, b):
    """Whether two nested states are equal, bit by bit."""
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        left, right = (
            {k: v for k, v in x.items() if k != "cpu_seconds"} for x in (a, b)
        )
        return left.keys() == right.keys() and all(
            same(left[k], right[k]) for k in left
        )
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b or (a != a and b != b)


def state(folder):
    return load_checkpoint(Path(folder) / "checkpoint.pt")["state"]


def test_every_program_has_a_smoke_config_and_every_config_a_program():
    assert {path.stem for path in SMOKE.glob("*.yaml")} == set(PROGRAMS)


@pytest.mark.slow
def test_the_smoke_configs_run_one_after_another_and_each_ends_soon(capsys):
    """In the order in which they need each other; CPU seconds, on one thread."""
    order = ["sft", "reward-model", "ppo-lm", "grpo", "evaluate"]
    order = ["prepare-prompts", "reinforce", "ppo-env", "plot", "rlhf-toy", *order]
    assert sorted(order) == sorted(PROGRAMS)
    for name in order:
        began = time.process_time()
        run(name, "--config", str(SMOKE / f"{name}.yaml"))
        assert time.process_time() - began < 120, name
    said = capsys.readouterr().out
    assert "in closed form" in said and "policy and critic" in said
    scores = [one["score"] for one in read_log("runs/smoke/ppo-lm")]
    assert sum(scores[-5:]) > sum(scores[:5]) + 5 * 0.1


def test_the_toy_prints_the_closed_form_beside_what_it_came_to(capsys):
    run("rlhf-toy", "--toy.vocab_size", "4", "--toy.hidden", "8", *RLHF)
    said = capsys.readouterr().out
    best = uniform_optimum(4, 3, 0.1)
    assert f"score {best.score:.4f}, KL {best.kl:.4f} nats in closed form" in said
    assert re.search(r"score 0\.\d{4}, KL -?\d+\.\d{4} nats, mean", said)


def test_a_transformer_learns_the_toy_from_nothing():
    size = [
        "--toy.trunk",
        "transformer",
        "--toy.vocab_size",
        "16",
        "--toy.hidden",
        "32",
    ]
    few = ["--algorithm.num_updates", "40", "--algorithm.length", "4"]
    free = ["--algorithm.beta", "0", "--algorithm.batch_size", "128"]
    free += ["--algorithm.learning_rate", "0.003"]
    run("rlhf-toy", *size, *few, *free, "--run.out", "t", "--run.progress", "false")
    log = read_log("t")
    assert log[0]["score"] < 0.12 and log[0]["entropy"] == pytest.approx(math.log(16))
    assert log[-1]["score"] > 0.9


def test_a_run_leaves_a_log_its_settings_and_a_checkpoint():
    run("ppo-lm", *TINY, *RLHF, "--run.out", "a", "--run.seed", "3")
    log = read_log("a")
    assert [one["update"] for one in log] == [*range(8)]
    assert [i for i, one in enumerate(log) if "accuracy" in one] == [3, 7]
    settings = json.loads(Path("a/settings.json").read_text(encoding="utf-8"))
    assert settings["run"]["seed"] == 3 and settings["program"] == "ppo-lm"
    saved = load_checkpoint(Path("a/checkpoint.pt"))
    assert json.loads(saved["settings"])["algorithm"]["batch_size"] == 16
    kept = saved["state"]["learner"]
    assert {"trunk.lm_head.weight", "value_head.last.weight"} <= kept["model"].keys()
    assert kept["random"].dtype == torch.uint8 and len(saved["state"]["records"]) == 8


@pytest.mark.parametrize(
    "program",
    ["ppo-lm", "grpo", "sft", "rlhf-toy", "reward-model", "reinforce", "ppo-env"],
)
def test_a_run_that_is_taken_up_ends_as_one_that_was_not_put_down(program, monkeypatch):
    """Broken off by an error between two updates, behind the last checkpoint."""
    options = [*RLHF] if program != "rlhf-toy" else [*RLHF, "--toy.hidden", "8"]
    if program == "grpo":
        options += ["--algorithm.group_size", "4"]
    if program in ("sft", "reward-model"):
        options = ["--algorithm.num_epochs", "8", "--run.checkpoint_every", "3"]
    if program == "reward-model":
        options += ["--pairs.num_pairs", "64", "--pairs.length", "2"]
    if program in CARTPOLE:
        options = [*CARTPOLE[program], "--run.checkpoint_every", "3"]
    elif program != "rlhf-toy":
        options = [*TINY, *options]
    run(program, *options, "--run.out", "whole")

    add, lines = Log.add, []

    def breaking(self, record):
        add(self, record)
        lines.append(record)
        if len(lines) == 5:
            raise OSError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(Log, "add", breaking)
        assert main([program, *options, "--run.out", "halved"]) == 1
    assert len(read_log("halved")) == 5
    with open("halved/metrics.jsonl", "a", encoding="utf-8") as torn:
        torn.write('{"update": 5.0, "sco')
    run(program, *options, "--run.out", "halved")
    assert without_time("halved") == without_time("whole")
    assert same(state("halved"), state("whole"))
    before = Path("halved/checkpoint.pt").read_bytes()
    run(program, *options, "--run.out", "halved")  # nothing is left to do
    assert Path("halved/checkpoint.pt").read_bytes() == before


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="Windows has no SIGKILL")
@pytest.mark.parametrize("program", ["ppo-lm", "ppo-env"])
def test_a_run_killed_again_and_again_ends_bit_equal_to_one_that_was_not(program):
    """SIGKILL at moments that nobody chose, in a process of its own."""
    options = [*TINY, *RLHF, "--algorithm.num_updates", "60", "--run.eval_every", "7"]
    if program == "ppo-env":
        options = [*CARTPOLE["ppo-env"], "--algorithm.total_steps", "3840"]
        options += ["--run.checkpoint_every", "3", "--run.progress", "false"]
    run(program, *options, "--run.out", "whole")
    command = [sys.executable, "-m", "course_lib.train", program, *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    killed = 0
    for after in (3, 17, 34):  # lines of the log, and then a little
        process = subprocess.Popen(
            [*command, "--run.out", "killed"],
            env=environment,
            stdout=subprocess.DEVNULL,
        )
        log, deadline = Path("killed/metrics.jsonl"), time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            if log.exists() and log.read_bytes().count(b"\n") >= after:
                time.sleep(0.003 * after)
                process.kill()
                break
            time.sleep(0.002)
        killed += process.wait() == -signal.SIGKILL
    assert killed >= 2
    assert len(read_log("killed")) < 60
    run(program, *options, "--run.out", "killed")
    assert without_time("killed") == without_time("whole")
    assert same(state("killed"), state("whole"))


def test_a_folder_with_a_run_of_other_settings_is_not_written_over(capsys):
    run("ppo-lm", *TINY, *RLHF, "--run.out", "a")
    before = Path("a/checkpoint.pt").read_bytes()
    other = [*TINY, *RLHF, "--run.out", "a", "--algorithm.beta", "0.5"]
    assert main(["ppo-lm", *other]) == 1
    said = capsys.readouterr().err
    assert "algorithm.beta=0.01 there and 0.5 now" in said and "Traceback" not in said
    assert Path("a/checkpoint.pt").read_bytes() == before
    run("ppo-lm", *other, "--run.fresh", "true")
    assert Path("a/checkpoint.pt").read_bytes() != before
    assert main(["sft", *TINY, "--run.out", "a"]) == 1
    assert "holds a run of ppo-lm, not of sft; give" in capsys.readouterr().err


def test_two_runs_at_once_do_not_write_into_one_folder(capsys):
    """Their logs would be one, and each would take the other's half checkpoint."""
    Path("a").mkdir()
    with FileLock("a/.lock"):  # to the system, as good as another process
        assert main(["ppo-lm", *TINY, *RLHF, "--run.out", "a"]) == 1
    told = capsys.readouterr().err
    assert "run.out=a is being written by another process" in told
    assert {one.name for one in Path("a").iterdir()} <= {".lock"}
    for _ in range(2):
        run("ppo-lm", *TINY, *RLHF, "--run.out", "a")
        gc.collect()
        with FileLock("a/.lock", timeout=0):  # a run that is over holds it no longer
            pass


def test_a_spoiled_checkpoint_is_refused_in_words(capsys):
    run("ppo-lm", *TINY, *RLHF, "--run.out", "a")
    path = Path("a/checkpoint.pt")
    path.write_bytes(path.read_bytes()[:-100])
    assert main(["ppo-lm", *TINY, *RLHF, "--run.out", "a"]) == 1
    assert "checkpoint.pt: cut off or changed" in capsys.readouterr().err
    assert main(["evaluate", "--checkpoint", "a"]) == 1
    assert main(["evaluate", "--checkpoint", "nowhere"]) == 1
    assert "nowhere: cannot be read" in capsys.readouterr().err


def test_from_sft_over_a_reward_model_to_ppo(capsys):
    """reward_source=reward_model, each stage from the checkpoint of the one before."""
    size = [*TINY, "--model.width", "32"]
    run("sft", *size, "--run.out", "s", "--stop.accuracy", "0.1")
    pairs = ["--pairs.policy", "s", "--pairs.length", "2", "--pairs.num_pairs", "128"]
    run("reward-model", *size, *pairs, "--run.out", "r", "--algorithm.num_epochs", "2")
    start = ["--start.policy", "s", "--start.reward_source", "reward_model"]
    start += ["--start.reward_model", "r", "--policy.critic", "separate"]
    run("ppo-lm", *size, *RLHF, *start, "--run.out", "p")
    assert "reward model" in capsys.readouterr().out
    scores = [one["score"] for one in read_log("p")]
    assert all(one != round(one) for one in scores)  # nobody counts right answers
    reference = state("p")["ref"]
    begin = state("s")["learner"]["model"]
    assert torch.equal(reference["trunk.lm_head.weight"], begin["trunk.lm_head.weight"])
    assert main(["ppo-lm", *size, "--start.policy", "r", "--run.out", "q"]) == 1
    assert "expected a run of sft or ppo-lm or grpo" in capsys.readouterr().err
    assert main(["ppo-lm", *TINY, "--start.policy", "s", "--run.out", "q"]) == 1
    assert "model.width must be 32, that of s, got 16" in capsys.readouterr().err


@pytest.mark.parametrize("program", ["ppo-lm", "grpo"])
@pytest.mark.parametrize(
    ("setting", "value", "wish"),
    [
        ("algorithm.num_updates", "0", "at least 1"),
        ("algorithm.num_epochs", "0", "at least 1"),
        ("algorithm.minibatch_size", "0", "at least 1"),
        ("algorithm.staleness", "-1", "at least 0"),
        ("algorithm.max_grad_norm", "-1", "at least 0"),
        ("run.eval_every", "0", "at least 1"),
        ("run.checkpoint_every", "0", "at least 1"),
        ("run.threads", "0", "at least 1"),
    ],
)
def test_a_number_that_no_run_can_have_is_refused_by_its_name(
    program, setting, value, wish, capsys
):
    """A gradient clipped to a length of -1 would climb instead, and nobody notice."""
    group = ["--algorithm.group_size", "8"] if program == "grpo" else []
    assert main([program, *TINY, *RLHF, *group, f"--{setting}", value]) == 1
    said = capsys.readouterr().err
    assert f"{setting.rpartition('.')[2]} must be {wish}, got {value}" in said


def test_a_checkpoint_that_no_program_has_written_is_refused_in_words(capsys):
    save_checkpoint(Path("q/checkpoint.pt"), {"weights": torch.zeros(2)})
    assert main(["ppo-lm", *TINY, *RLHF, "--run.out", "q"]) == 1
    assert "checkpoint.pt: holds no run of a program" in capsys.readouterr().err
    assert main(["evaluate", "--checkpoint", "q"]) == 1
    assert "checkpoint.pt: holds no run of a program" in capsys.readouterr().err


def test_what_is_held_out_of_one_level_is_in_no_other():
    """3+4= is a problem of both; split alone, 35 of 58 held-out ones were learnt."""
    task = TaskConfig(levels=("add-1", "add-sub-1", "times-1"))
    train, test = make_sources(task, torch.device("cpu"))
    asked = {one.question for one in test.problems}
    assert asked.isdisjoint({one.question for one in train.problems})
    assert len(test) == 80 and train.open_problems(1.0) == len(train)
    alone, _ = make_sources(TaskConfig(levels=("times-1",)), torch.device("cpu"))
    assert train.problems[-80:] == alone.problems


def test_a_reward_model_is_tested_on_problems_that_it_has_not_seen(monkeypatch, capsys):
    """Of pairs split by chance a tenth to a fifth were in both parts, word for word."""
    seen = {}
    real = supervised.train_reward_model, supervised.preference_accuracy

    def fitted(policy, pairs, *rest, **options):
        seen["learnt"] = pairs
        return real[0](policy, pairs, *rest, **options)

    def asked(model, pairs):
        seen["held out"] = pairs
        return real[1](model, pairs)

    monkeypatch.setattr(supervised, "train_reward_model", fitted)
    monkeypatch.setattr(supervised, "preference_accuracy", asked)
    pairs = ["--pairs.length", "2", "--pairs.num_pairs", "300"]
    run("reward-model", *TINY, *pairs, "--run.out", "r", "--algorithm.num_epochs", "1")
    rows = {name: set(one.prompts.rows.tolist()) for name, one in seen.items()}
    assert rows["learnt"].isdisjoint(rows["held out"])
    assert len(seen["learnt"]) + len(seen["held out"]) == 300
    assert 10 < len(seen["held out"]) < 60
    few = [*pairs[:2], "--pairs.num_pairs", "1"]
    assert main(["reward-model", *TINY, *few, "--run.out", "f"]) == 1
    assert "pairs.num_pairs must leave pairs to learn from" in capsys.readouterr().err


def test_a_reward_model_is_heard_in_the_verifiers_unit():
    pairs = ["--pairs.length", "2", "--pairs.num_pairs", "64", "--pairs.scale", "4"]
    run("reward-model", *TINY, *pairs, "--run.out", "r", "--algorithm.num_epochs", "2")
    size = TransformerConfig(context=16, width=16, num_layers=1, num_heads=2)
    task, device = TaskConfig(levels=("add-1",)), torch.device("cpu")
    model, scale = load_reward_model("r", task, size, device)
    assert scale == 4.0
    start = StartConfig(reward_source="reward_model", reward_model="r")
    source, _ = make_sources(task, device)
    judges, score = judge(start, task, size, source, device)
    assert judges.keys() == {"reward model"}
    prompts, tokens = source.prompts(torch.arange(6)), torch.randint(12, (6, 3))
    mask = torch.ones_like(tokens, dtype=torch.bool)
    nats = model(tokens, mask, prompts)
    assert nats.abs().min() > 0
    torch.testing.assert_close(score(tokens, mask, prompts), nats / 4)


def test_sft_stops_where_enough_is_known():
    run("sft", *TINY, "--run.out", "a", "--stop.accuracy", "0.0")
    assert len(read_log("a")) == 1
    # Between two checkpoints as well, or what was learnt last would be lost.
    run("sft", *TINY, "--run.out", "b", "--stop.accuracy", "0.0", *SELDOM)
    assert len(state("b")["records"]) == 1 and state("b")["stopped"]


def test_prepared_problems_are_read_back(capsys):
    run("prepare-prompts", "--task.levels", "[times-1]", "--prepare.out", "p")
    files = ["--task.train_file", "p/train.jsonl", "--task.test_file", "p/test.jsonl"]
    run("sft", *TINY, *files, "--task.problems", "files", "--algorithm.num_epochs", "1")
    assert main(["sft", "--task.problems", "files"]) == 1
    assert "train_file and test_file must be given" in capsys.readouterr().err


def test_a_policy_answers_in_evaluation_as_long_as_in_training(capsys):
    length = ["--algorithm.length", "1", "--algorithm.num_updates", "1"]
    run("ppo-lm", *TINY, *RLHF, *length, "--run.out", "p")
    capsys.readouterr()
    run("evaluate", "--checkpoint", "p", "--show", "20", "--episodes", "1")
    said = re.findall(r"-> '(.*)' \(gold", capsys.readouterr().out)
    assert len(said) == 20 and max(map(len, said)) == 1


def test_a_policy_is_evaluated_from_its_checkpoint(capsys):
    run("sft", *TINY, "--run.out", "s", "--algorithm.num_epochs", "30")
    accuracy = read_log("s")[-1]["accuracy"]
    run("evaluate", "--checkpoint", "s", "--greedy", "true")
    assert f"{accuracy:.3f} right of the likeliest response" in capsys.readouterr().out
    run("evaluate", "--checkpoint", "s", "--episodes", "2")
    first = capsys.readouterr().out
    run("evaluate", "--checkpoint", "s", "--episodes", "2")
    assert capsys.readouterr().out == first


@pytest.mark.parametrize("program", ["reinforce", "ppo-env"])
def test_an_agent_is_trained_and_evaluated(program, capsys):
    few = {"reinforce": ["--algorithm.num_episodes", "16"]}.get(
        program, ["--algorithm.total_steps", "2048", "--algorithm.num_epochs", "1"]
    )
    options = [*few, "--run.out", "a", "--run.progress", "false", "--run.device", "cpu"]
    run(program, *options)
    first = without_time("a")
    run(program, *options)
    assert "is finished" in capsys.readouterr().out
    run(program, *options, "--run.fresh", "true")
    assert without_time("a") == first
    for greedy in ("true", "false"):
        run("evaluate", "--checkpoint", "a", "--greedy", greedy)
    said = capsys.readouterr().out
    assert said.count("20 episodes: mean return") == 2
    assert 5 < float(re.search(r"mean return ([\d.]+), from", said)[1]) <= 500


def write_log(folder, values, first=100.0):
    Path(folder).mkdir()
    lines = [
        json.dumps({"env_steps": first + 100.0 * i, "episode_return": value})
        for i, value in enumerate(values)
    ]
    Path(folder, "metrics.jsonl").write_text("\n".join(lines), encoding="utf-8")


def test_runs_become_a_mean_and_its_interval_on_the_steps_that_all_have():
    write_log("a", [0.0, 10.0, None, 30.0])
    write_log("b", [2.0, 14.0, 20.0])
    curve = mean_curve("both", ["a", "b"], "episode_return", "env_steps")
    # At 300 the one has no point, and a line through its neighbours would invent it.
    assert curve.xs == [100.0, 200.0] and curve.means == [1.0, 12.0]
    # t of one degree of freedom times the standard error of 0 and 2.
    assert curve.halves[0] == pytest.approx(12.706 * math.sqrt(2) / math.sqrt(2))
    picture = svg([curve], "episode_return", "env_steps")
    assert "both (n = 2) ends at 12" in picture and picture.count("<polyline") == 1
    run("plot", "--runs", "[both=a+b]", "--out", "c.svg")
    assert Path("c.svg").read_text(encoding="utf-8") == picture
    assert main(["plot"]) == 1 and main(["plot", "--runs", "[none]"]) == 1
    write_log("d", [2.0, 14.0, 20.0], first=150.0)
    between = mean_curve("apart", ["a", "d"], "episode_return", "env_steps")
    assert (between.xs[0], between.xs[-1]) == (150.0, 350.0)
    assert between.means[0] == pytest.approx(3.5)
    assert between.means[-1] == pytest.approx(22.5)


def test_a_missing_tensorboard_is_said_in_words(monkeypatch, capsys):
    import course_lib.train.log as log

    monkeypatch.setattr(log.importlib.util, "find_spec", lambda name: None)
    assert main(["sft", *TINY, "--run.tensorboard", "true"]) == 1
    assert "pip install tensorboard" in capsys.readouterr().err


def test_tensorboard_is_told_each_update_once_also_by_a_run_that_was_taken_up(capsys):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    arguments = ["sft", *TINY, "--run.out", "a", "--run.tensorboard", "true"]
    arguments += ["--algorithm.num_epochs", "4", "--run.checkpoint_every", "2"]

    def killed(*_):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        save = Session.save
        patch.setattr(
            Session,
            "save",
            lambda *a: killed() if len(read_log("a")) == 4 else save(*a),
        )
        assert main(arguments) == 130
    run(*arguments)
    seen = EventAccumulator("a").Reload()
    log = read_log("a")
    assert set(seen.Tags()["scalars"]) == set(log[0])
    losses = [(one.step, one.value) for one in seen.Scalars("loss")]
    told = [(i, pytest.approx(one["loss"])) for i, one in enumerate(log)]
    assert losses == told and len(log) == 4
    run(*arguments, "--run.fresh", "true", "--algorithm.num_epochs", "1")
    assert len(EventAccumulator("a").Reload().Scalars("loss")) == 1


def test_a_log_with_a_broken_line_in_its_middle_is_named_with_the_line():
    write_log("a", [1.0, 2.0])
    path = Path("a/metrics.jsonl")
    path.write_text('{"x": 1}\n{"x"\n{"x": 3}\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"metrics\.jsonl, line 2"):
        read_log("a")
    with pytest.raises(ValueError, match="there is no log"):
        read_log("b")


def marked(folder="m"):
    """Problems whose written answers are of 7 characters: "#### 14"."""
    run("prepare-prompts", "--task.levels", "[add-1]", "--prepare.out", folder)
    files = [f"--task.{part}_file={folder}/{part}.jsonl" for part in ("train", "test")]
    return [*TINY, "--task.problems", "files", *files]


@pytest.mark.parametrize("program", ["ppo-lm", "grpo"])
def test_a_response_may_be_as_long_as_the_longest_written_answer(program, capsys):
    few = ["--algorithm.num_updates", "1", "--algorithm.batch_size", "16"]
    run(program, *marked(), *few, "--run.out", "a")
    assert "cut off" not in capsys.readouterr().out
    # An untrained policy says EOS one time in 97: most responses take all they may.
    assert 7 < read_log("a")[0]["length"] <= 8
    run("evaluate", "--checkpoint", "a", "--greedy", "true")
    run(program, *marked(), *few, "--run.out", "b", "--algorithm.length", "4")
    said = capsys.readouterr().out
    assert "may have 4 tokens, and the longest written answer has 8 with EOS" in said
    assert read_log("b")[0]["length"] <= 4


def test_pairs_are_as_long_as_the_longest_written_answer():
    few = ["--pairs.num_pairs", "64", "--algorithm.num_epochs", "1"]
    run("reward-model", *marked(), *few, "--run.out", "r")
    with pytest.MonkeyPatch.context() as patch:
        asked = []
        patch.setattr(
            "course_lib.train.supervised.sample_pairs",
            lambda *a, **_: asked.append(a[3]) or (_ for _ in ()).throw(ValueError),
        )
        main(["reward-model", *marked(), *few, "--run.out", "s"])
    assert asked == [8]


@pytest.mark.parametrize("program", ["sft", "reward-model", "ppo-lm", "grpo"])
def test_a_context_that_is_too_small_is_named_with_what_it_must_hold(program, capsys):
    assert main([program, *TINY, "--task.problems", "words"]) == 1
    said = capsys.readouterr().err
    assert "model.context must be at least 146 with task.problems=words" in said
    assert "of up to 37; got 16" in said


@pytest.mark.parametrize("program", ["sft", "reward-model", "ppo-lm"])
def test_a_run_does_not_go_on_with_other_problems(program, capsys):
    options = [*marked(), "--run.out", "a"]
    options += ["--algorithm.num_epochs", "1"]
    if program == "ppo-lm":
        options += ["--algorithm.num_updates", "1", "--algorithm.batch_size", "8"]
    run(program, *options)
    run(program, *options)
    for name in ("m/train.jsonl", "m/test.jsonl"):
        kept = Path(name).read_text(encoding="utf-8")
        first, rest = kept.split("\n", 1)
        answer = re.sub("#### .*", '#### 3"}', first)
        Path(name).write_text(f"{answer}\n{rest}", encoding="utf-8")
        assert main([program, *options]) == 1
        assert "the task's problems changed since" in capsys.readouterr().err
        Path(name).write_text(kept, encoding="utf-8")
    run(program, *options)


def test_a_run_does_not_go_on_from_another_start(capsys):
    few = ["--algorithm.num_epochs", "1"]
    run("sft", *TINY, *few, "--run.out", "s")
    pairs = [*TINY, *few, "--pairs.num_pairs", "64", "--pairs.policy", "s"]
    run("reward-model", *pairs, "--run.out", "r")
    start = ["--start.policy", "s", "--start.reward_source", "reward_model"]
    start = [*TINY, *RLHF, *start, "--start.reward_model", "r", "--run.out", "a"]
    run("ppo-lm", *start)
    again = ["--run.fresh", "true", "--run.seed", "1"]
    run("reward-model", *pairs, "--run.out", "r", *again)
    assert main(["ppo-lm", *start]) == 1
    assert "start.reward_model changed since" in capsys.readouterr().err
    run("sft", *TINY, *few, "--run.out", "s", *again)
    judged = ["reward-model", *pairs, "--run.out", "r", "--run.seed", "1"]
    for line in (["ppo-lm", *start], judged):
        assert main(line) == 1
        assert re.search("(start|pairs).policy changed", capsys.readouterr().err)


def test_prepared_problems_are_written_over_only_where_that_is_asked_for(capsys):
    prepare = ["prepare-prompts", "--task.levels", "[times-1]", "--prepare.out", "p"]
    run(*prepare)
    said = capsys.readouterr().out
    assert "p/train.jsonl" in said.replace(os.sep, "/") and "80 problems" in said
    assert "'#### " in said and "up to 4 tokens" in said and "up to 8" in said
    assert "model.context must be at least 12" in said
    path = Path("p/test.jsonl")
    written = path.read_text(encoding="utf-8")
    run(*prepare)  # the same again is no loss
    path.write_text(written.replace("*", " times "), encoding="utf-8")
    other = ["--task.split_seed", "1"]
    train = Path("p/train.jsonl").read_bytes()
    for line in (prepare, [*prepare, *other]):
        assert main(line) == 1
        assert "--prepare.fresh true" in capsys.readouterr().err
        assert Path("p/train.jsonl").read_bytes() == train  # both files or none
    run(*prepare, "--prepare.fresh", "true")
    assert path.read_text(encoding="utf-8") == written


LANGUAGE = {
    "ppo-lm": [*TINY, *RLHF],
    "sft": [*TINY, "--algorithm.num_epochs", "8"],
    "reward-model": [*TINY, "--algorithm.num_epochs", "8", "--pairs.num_pairs", "64"],
    "reinforce": CARTPOLE["reinforce"],
}


@pytest.mark.parametrize("program", LANGUAGE)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_interrupted_keeps_its_last_update(
    program, number, capsys, monkeypatch
):
    """The signal comes in the middle of one; the run ends behind it."""
    options = [*LANGUAGE[program], "--run.checkpoint_every", "100"]
    options += ["--run.progress", "false", "--run.device", "cpu"]
    learner = Learner if program in CARTPOLE else ModelLearner
    taken, before = [], signal.getsignal(number)
    run(program, *options, "--run.out", "whole")
    with monkeypatch.context() as patched:
        step = learner.step

        def signalled(self, *arguments):
            taken.append(1)
            if len(taken) == 3:
                signal.raise_signal(number)
            return step(self, *arguments)

        patched.setattr(learner, "step", signalled)
        assert main([program, *options, "--run.out", "a"]) == 128 + number
    assert signal.getsignal(number) == before
    said, done = capsys.readouterr().err, len(read_log("a"))
    unit = "epochs" if program in ("sft", "reward-model") else "updates"
    assert f"interrupted after {done} of 8 {unit}; the same command" in said
    assert 0 < done < 8 and "Traceback" not in said
    run(program, *options, "--run.out", "a")
    assert f"goes on after {done} of 8 {unit}" in capsys.readouterr().out
    assert without_time("a") == without_time("whole")
    assert same(state("a"), state("whole"))
    run(program, *options, "--run.out", "a")
    said = capsys.readouterr().out
    assert f"is finished, after 8 of 8 {unit}; --run.fresh true begins anew" in said


def test_the_second_interruption_ends_a_run_at_once(capsys, monkeypatch):
    def impatient(self, loss):
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
        raise AssertionError

    monkeypatch.setattr(ModelLearner, "step", impatient)
    assert main(["sft", *TINY]) == 130
    assert "Traceback" not in capsys.readouterr().err
    assert read_log("runs/sft") == []


def test_the_settings_of_a_run_make_it_go_on(capsys):
    run("ppo-lm", *TINY, *RLHF, "--run.out", "a")
    run("ppo-lm", "--config", "a/settings.json")
    assert "is finished, after 8 of 8 updates" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["sft", "--config", "a/settings.json"])
    assert "holds the settings of ppo-lm, not of sft" in capsys.readouterr().err


def test_how_often_is_measured_may_change_and_how_many_updates_may_not(capsys):
    run("ppo-lm", *TINY, *RLHF, "--run.out", "a")
    run("ppo-lm", *TINY, *RLHF, "--run.out", "a", "--run.eval_every", "1")
    more = ["--run.out", "a", "--algorithm.num_updates", "9"]
    assert main(["ppo-lm", *TINY, *RLHF, *more]) == 1
    said = capsys.readouterr().err
    assert "algorithm.num_updates=8 there and 9 now" in said
    assert "begin one with --start.policy a" in said
    run("sft", *TINY, "--run.out", "s", "--algorithm.num_epochs", "4")
    run("sft", *TINY, "--run.out", "s", "--algorithm.num_epochs", "6")
    run("sft", *TINY, "--run.out", "t", "--algorithm.num_epochs", "6")
    assert without_time("s") == without_time("t") and same(state("s"), state("t"))
    less = [*TINY, "--run.out", "u", "--algorithm.anneal_learning_rate", "true"]
    run("sft", *less, "--algorithm.num_epochs", "4")
    assert main(["sft", *less, "--algorithm.num_epochs", "6"]) == 1
    assert "algorithm.num_epochs=4 there and 6 now" in capsys.readouterr().err


def test_a_reward_model_is_fitted_up_to_an_accuracy_on_held_out_pairs(capsys):
    pairs = ["--pairs.num_pairs", "64", "--pairs.length", "2", "--run.out", "r"]
    options = [*TINY, *pairs, "--algorithm.num_epochs", "5"]
    run("reward-model", *options, "--stop.accuracy", "0.0")
    assert len(read_log("r")) == 1
    run("reward-model", *options, "--stop.accuracy", "0.0")
    assert len(read_log("r")) == 1 and "is finished" in capsys.readouterr().out
    run("reward-model", *options, "--run.fresh", "true")
    accuracies = [one["held_out_accuracy"] for one in read_log("r")]
    assert len(accuracies) == 5 and max(accuracies[:-1]) < 1


def test_a_run_of_several_processes_is_not_gone_on_with_by_one(capsys, monkeypatch):
    run("ppo-lm", *TINY, *RLHF, "--run.out", "a")
    whole = load_checkpoint(Path("a/checkpoint.pt"))
    save_checkpoint(Path("a/checkpoint.pt"), {**whole, "processes": 2})
    assert main(["ppo-lm", *TINY, *RLHF, "--run.out", "a"]) == 1
    said = capsys.readouterr().err
    assert "holds a run of 2 processes, got 1: torchrun --nproc_per_node=2" in said


def test_what_a_policy_can_do_before_it_learns_is_said_and_kept(capsys):
    run("sft", *TINY, "--run.out", "s", "--algorithm.num_epochs", "30")
    accuracy = read_log("s")[-1]["accuracy"]
    assert accuracy > 0
    start = ["--start.policy", "s", "--run.out", "p"]
    run("ppo-lm", *TINY, *RLHF, *start)
    said = capsys.readouterr().out
    assert f"held-out accuracy at the start {accuracy:.3f}" in said
    log = read_log("p")
    assert log[0]["accuracy_before"] == accuracy
    assert all("accuracy_before" not in one for one in log[1:])
    run("ppo-lm", *TINY, *RLHF, *start)
    assert "at the start" not in capsys.readouterr().out


def test_a_bar_begins_where_the_run_was_taken_up(capsys, monkeypatch):
    options = [*LANGUAGE["ppo-lm"], "--run.progress", "true", "--run.out", "a"]
    with monkeypatch.context() as patched:
        patched.setattr(Session, "_asked_to_end", lambda self: signal.SIGINT)
        assert main(["ppo-lm", *options]) == 130
    assert re.search(r"ppo-lm: +0%.* 0/8 ", capsys.readouterr().err)
    run("ppo-lm", *options)
    first = capsys.readouterr().err.strip().split("\r")[0]
    assert re.search(r"ppo-lm: +12%.* 1/8 ", first)


def test_an_accuracy_comes_with_its_count_and_interval(capsys):
    run("sft", *TINY, "--run.out", "s", "--algorithm.num_epochs", "30")
    run("evaluate", "--checkpoint", "s", "--greedy", "true")
    said = capsys.readouterr().out
    found = re.search(
        r"(\S+) right of the likeliest response to each of 20 problems, 95 % interval "
        r"(\S+) to (\S+) ",
        said,
    )
    share, low, high = map(float, found.groups())
    # Wilson's ends are where a test of that probability would just reject the share.
    for end in (low, high):
        deviation = abs(share - end) / math.sqrt(end * (1 - end) / 20)
        assert deviation == pytest.approx(1.96, abs=0.02)
    assert low < share < high and "Wilson" in said
    for share, count in ((0.0, 20), (1.0, 20)):
        low, high = wilson_interval(share, count)
        assert 0 <= low <= share <= high <= 1 and 0.1 < high - low < 0.2


def test_a_policy_is_asked_other_problems_than_its_runs(capsys):
    run("sft", *TINY, "--run.out", "s", "--algorithm.num_epochs", "2")
    run("evaluate", "--checkpoint", "s", "--levels", "[times-1, add-sub-1]")
    said = capsys.readouterr().out
    assert "20 sampled responses to each of 60 problems" in said
    assert re.search(r"'\d\*\d='", said)
    lines = [{"question": f"{i}-1=", "answer": f"#### {i - 1}"} for i in range(1, 8)]
    text = "\n".join(map(json.dumps, lines))
    Path("own.jsonl").write_text(text, encoding="utf-8")
    run("evaluate", "--checkpoint", "s", "--test_file", "own.jsonl", "--show", "1")
    said = capsys.readouterr().out
    assert "of 7 problems" in said and said.startswith("'1-1=' -> ")
    both = ["--test_file", "own.jsonl", "--levels", "add-1"]
    assert main(["evaluate", "--checkpoint", "s", *both]) == 1
    assert "one of them must be left out" in capsys.readouterr().err


def test_a_plot_draws_what_the_log_has_and_names_it_where_it_does_not(capsys):
    run("ppo-lm", *TINY, *RLHF, "--run.out", "p")
    run("sft", *TINY, "--run.out", "s", "--algorithm.num_epochs", "2")
    capsys.readouterr()
    run("plot", "--runs", "p", "--out", "new/p.svg")
    run("plot", "--runs", "s")
    said = capsys.readouterr().out
    assert "p: score 0" in said and "at update 7" in said
    assert "s: accuracy 0" in said and "at epoch 1" in said and "±" not in said
    assert "<title>score by update: p ends at" in Path("new/p.svg").read_text("utf-8")
    for wrong in ("--metric", "--x"):
        assert main(["plot", "--runs", "p", wrong, "reward"]) == 1
        said = capsys.readouterr().err
        assert "no record has" in said and "there are accuracy, accuracy_before" in said
    for arguments, words in (
        (["--runs", "p", "--out", "a.png"], "out must end with .svg, got 'a.png'"),
        (["--runs", "[a=p+./p]"], "a must be of different runs, got ['p', './p']"),
        (["--runs", "[a=p, a=s]"], "runs must have a name each, got 'a' twice"),
    ):
        assert main(["plot", *arguments]) == 1
        assert words in capsys.readouterr().err
    assert not Path("a.png").exists()


@pytest.mark.parametrize(
    ("low", "high"),
    [(0, 1), (0, 98_304), (0.07, 0.61), (-3, 250), (1e-4, 3e-4), (7, 8), (-0.2, -0.1)],
)
def test_an_axis_has_about_five_round_numbers(low, high):
    found = ticks(low, high)
    assert 3 <= len(found) <= 6 and low <= found[0] and found[-1] <= high
    steps = {round(b - a, 9) for a, b in itertools.pairwise(found)}
    assert len(steps) == 1
    digits = f"{steps.pop():e}".partition("e")[0].rstrip("0").rstrip(".")
    assert digits in ("1", "2", "2.5", "5")


def test_a_band_ends_where_a_share_ends():
    curve = Curve("a", [0.0, 1.0], [0.5, 0.9], [0.1, 3.0], 2)
    band = re.search(r'<polygon points="([^"]*)"', svg([curve], "accuracy", "update"))
    heights = [float(one.split(",")[1]) for one in band[1].split()]
    texts = re.findall(r'text-anchor="end">([^<]*)<', svg([curve], "accuracy", "x"))
    assert texts[0] == "0" and texts[-1] == "1"
    # The second point's band is cut off at 1 and at 0: at the edges of what is drawn.
    assert heights[1] == min(heights) and heights[2] == max(heights)
    wide = svg([curve], "episode_return", "update")
    assert "-2" in re.findall(r'text-anchor="end">([^<]*)<', wide)
    lone = svg([Curve("b", [3.0, 3.0], [2.0, 2.0], [0.0, 0.0])], "loss", "update")
    assert "nan" not in lone and "n =" not in lone
