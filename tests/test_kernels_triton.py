"""The triton engine where there is no GPU: interpreted, and compiled for one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
pytest.importorskip("triton", reason="triton is not installed here")

# What a compiler for one GPU makes of each kernel, as it is called for float32.
COMPILE = """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from course_lib.kernels import scan_triton

NUMBERS = {"num_rows", "num_steps", "x_row", "x_step", "decay_row", "decay_step",
           "y_row", "y_step", "in_row", "in_step", "out_row", "out_step"}
FLAGS, SIZES = {"terminated", "truncated"}, {"ROWS", "STEPS"}
for kernel in (scan_triton.scan_kernel, scan_triton.gae_kernel):
    for rows, steps in ((1, 1024), (32, 32), (128, 8)):
        types = {
            name: "i32" if name in NUMBERS
            else "*i1" if name in FLAGS
            else "constexpr" if name in SIZES
            else "fp32" if name.startswith("gamma")
            else "*fp32"
            for name in kernel.arg_names
        }
        source = ASTSource(
            fn=kernel, signature=types, constexprs={"ROWS": rows, "STEPS": steps}
        )
        made = compile(source, target=GPUTarget("cuda", 90, 32))
        assert ".target sm_90" in made.asm["ptx"]
        print(kernel.__name__, len(made.asm["cubin"]) > 1000)
"""


def run(arguments: list[str], **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    return done.stdout


def test_interpreted_it_passes_the_tests_of_the_other_engines():
    names = ("returns", "advantages", "gae_cases", "gae_contract", "vtrace")
    said = run(
        [
            *("-m", "pytest", "-q", "-k", "not numba and not importing"),
            *(f"tests/test_kernels_{name}.py" for name in names),
        ],
        TRITON_INTERPRET="1",
        OMP_NUM_THREADS="1",
    )
    assert " passed" in said and "skipped" not in said


def test_it_compiles_for_an_h100_without_one(tmp_path):
    said = run(["-c", COMPILE], TRITON_CACHE_DIR=str(tmp_path), TRITON_INTERPRET="0")
    assert said.split() == ["scan_kernel", "True"] * 3 + ["gae_kernel", "True"] * 3


def test_on_a_cpu_it_says_that_it_needs_a_gpu():
    said = run(
        [
            "-c",
            "import torch\n"
            "from course_lib.kernels import scan_engine\n"
            "try:\n"
            "    scan_engine(torch.ones(2), 'triton')\n"
            "except ValueError as refusal:\n"
            "    print(refusal)\n",
        ],
        TRITON_INTERPRET="0",
    )
    assert said.strip() == "engine='triton' needs x on CUDA, got cpu"
