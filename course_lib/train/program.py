"""All programs by name, and the one command that starts them."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from course_lib.algorithms import (
    GroupConfig,
    PPOConfig,
    ReinforceConfig,
    RewardModelConfig,
    RLHFConfig,
    SFTConfig,
    ranks,
)
from course_lib.models import Sampling, TransformerConfig
from course_lib.train.classic import (
    EnvConfig,
    ToyConfig,
    ppo_env_program,
    reinforce_program,
    rlhf_toy_program,
)
from course_lib.train.evaluate import EvaluateConfig, evaluate_program
from course_lib.train.interrupt import Interrupted, signals_as_before
from course_lib.train.plot import PlotConfig, plot_program
from course_lib.train.prepare import PrepareConfig, prepare_prompts_program
from course_lib.train.processes import joined_processes, refuse_several
from course_lib.train.reinforced import StartConfig, grpo_program, ppo_program
from course_lib.train.session import RunConfig
from course_lib.train.settings import Program, read_settings
from course_lib.train.starts import PolicyConfig
from course_lib.train.supervised import (
    PairsConfig,
    StopConfig,
    reward_model_program,
    sft_program,
)
from course_lib.train.tasks import TaskConfig

_LANGUAGE = {
    "run": RunConfig,
    "task": TaskConfig,
    "model": TransformerConfig,
}
_POLICY = {"policy": PolicyConfig, "sampling": Sampling}
# run.seed decides them.
_SEEDS = frozenset({"algorithm.seed", "algorithm.seeds"})
_LENGTH = {"algorithm.length": "those of the longest written answer, and EOS."}

PROGRAMS: dict[str, Program] = {
    "reinforce": Program(
        reinforce_program,
        {"run": RunConfig, "env": EnvConfig, "algorithm": ReinforceConfig},
        {"run.out": "runs/reinforce", "algorithm.baseline": "value"},
        hidden=_SEEDS,
    ),
    "ppo-env": Program(
        ppo_env_program,
        {"run": RunConfig, "env": EnvConfig, "algorithm": PPOConfig},
        {"run.out": "runs/ppo-env"},
        hidden=_SEEDS,
    ),
    "rlhf-toy": Program(
        rlhf_toy_program,
        {"run": RunConfig, "toy": ToyConfig, "algorithm": RLHFConfig},
        {"run.out": "runs/rlhf-toy"},
        hidden=_SEEDS,
    ),
    "prepare-prompts": Program(
        prepare_prompts_program, {"task": TaskConfig, "prepare": PrepareConfig}
    ),
    "sft": Program(
        sft_program,
        {**_LANGUAGE, "algorithm": SFTConfig, "stop": StopConfig},
        {"run.out": "runs/sft", "run.eval_every": 1, "run.checkpoint_every": 1},
        hidden=_SEEDS,
    ),
    "reward-model": Program(
        reward_model_program,
        {
            **_LANGUAGE,
            "sampling": Sampling,
            "algorithm": RewardModelConfig,
            "pairs": PairsConfig,
            "stop": StopConfig,
        },
        {
            "run.out": "runs/reward-model",
            "run.eval_every": 1,
            "run.checkpoint_every": 1,
        },
        hidden=_SEEDS,
    ),
    "ppo-lm": Program(
        ppo_program,
        {**_LANGUAGE, **_POLICY, "algorithm": RLHFConfig, "start": StartConfig},
        {
            "run.out": "runs/ppo-lm",
            "algorithm.beta": 0.01,
            "algorithm.num_epochs": 2,
            "algorithm.minibatch_size": 64,
            "algorithm.learning_rate": 5e-4,
            "algorithm.max_grad_norm": 1.0,
            "algorithm.missing_eos_penalty": 1.0,
        },
        hidden=_SEEDS | {"algorithm.ptx_coef"},
        open=_LENGTH,
    ),
    "grpo": Program(
        grpo_program,
        {**_LANGUAGE, **_POLICY, "algorithm": GroupConfig, "start": StartConfig},
        {
            "run.out": "runs/grpo",
            "algorithm.beta": 0.01,
            "algorithm.baseline": "standardized",
            "algorithm.kl": "k3",
            "algorithm.clip_eps": 0.2,
            "algorithm.reduction": "token_mean",
            "algorithm.num_epochs": 2,
            "algorithm.minibatch_size": 64,
            "algorithm.learning_rate": 5e-4,
            "algorithm.max_grad_norm": 1.0,
            "algorithm.missing_eos_penalty": 1.0,
        },
        hidden=_SEEDS,
        open=_LENGTH,
    ),
    "evaluate": Program(evaluate_program, {"evaluate": EvaluateConfig}, flat=True),
    "plot": Program(plot_program, {"plot": PlotConfig}, flat=True),
}

SEVERAL = frozenset({"ppo-lm", "grpo"})
"""Programs that `torchrun --nproc_per_node=N -m course_lib.train` starts N times."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a program; what a person can put right is said in words, not as a traceback.

    Args:
        arguments: the command line; None: that of the process.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    name, values = read_settings(PROGRAMS, given)
    program = PROGRAMS[name]
    try:
        with signals_as_before(), joined_processes():
            if name not in SEVERAL:
                refuse_several(name)
            program.run(values, **program.configs(values))
    except (ValueError, TypeError, OSError) as error:
        where = f"rank {ranks.rank()}: " if ranks.world_size() > 1 else ""
        print(f"{where}error: {error}", file=sys.stderr, flush=True)
        return 1
    except Interrupted as interrupted:
        if said := str(interrupted):
            print(said, file=sys.stderr, flush=True)
        return interrupted.code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr, flush=True)
        return 130
    return 0
