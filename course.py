"""The front door of the PPO course: `python course.py lab` and you are in.

Standard library only, because nothing else is there yet when it runs. It makes
the environment `.venv` beside this file, installs the course into it, and starts
what you asked for; `python course.py --help` lists the verbs. Nothing has to be
activated and nothing outside this folder is changed. Any Python from 3.8 on can
read this file far enough to say which Python is needed.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import errno
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
OLDEST, NEWEST = (3, 11), (3, 14)  # the Pythons for which PyTorch has wheels
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
CPU_INDEX_PATIENCE = 15  # seconds until PyTorch's own index must have answered
FIRST_PORT = 8888
COPIED = ("chapters", "exercises", "solutions", "notebooks")
# Extras that an extra brings along.
COVERS = {"dev": {"dev", "gpu", "lab", "tensorboard", "train"}}


class Stop(Exception):
    """An end in plain words: printed without a traceback, exit code 1.

    `untouched` says that pip gave up before it changed anything.
    """

    def __init__(self, words: str, untouched: bool = False) -> None:
        super().__init__(words)
        self.untouched = untouched


def say(text: str) -> None:
    print(text, flush=True)


def write_atomically(path: Path, content: bytes) -> None:
    """Write `content` so that a reader sees the old file or the new one, whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=".draft-")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        os.chmod(draft, 0o644)  # mkstemp gives 0600, too little for a shared folder
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise


def check_python(
    version: tuple[int, int] = sys.version_info[:2],
    system: str = platform.system(),
    machine: str = platform.machine(),
    bits: int = 64 if sys.maxsize > 2**32 else 32,
) -> None:
    """Refuse an interpreter for which PyTorch has no wheel, and say what to install."""
    oldest, newest = (".".join(map(str, v)) for v in (OLDEST, NEWEST))
    get = f"Install Python {oldest} to {newest} (64 bit) from https://www.python.org"
    again = "and start this command with it, for example `python3.12 course.py lab`."
    if not OLDEST <= version <= NEWEST:
        age = "old" if version < OLDEST else "new"
        found = ".".join(map(str, version))
        raise Stop(
            f"This is Python {found}, too {age} for the course, which runs on "
            f"{oldest} to {newest}.\n{get}\n{again}"
        )
    if bits == 32:
        raise Stop(f"This is a 32-bit Python; PyTorch needs 64 bits.\n{get}\n{again}")
    if (system, machine) == ("Darwin", "x86_64"):
        raise Stop(
            "This Python runs on an Intel Mac, for which PyTorch makes no wheels any "
            "more.\nOn a Mac with an Apple chip, install Python for arm64; on an Intel "
            "Mac, read the course in Colab (see README.md)."
        )


def port_is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        if os.name != "nt":  # as the server does: a port just left counts as free
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def port_number(text: str) -> int:
    if text.isdecimal() and 0 < int(text) < 65536:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to 65535")


def choose_port(asked: int | None) -> int:
    """The port that was asked for, or else the first free one from 8888 on."""
    if asked is not None:
        if not port_is_free(asked):
            raise Stop(
                f"Port {asked} is taken: another program listens there, perhaps a "
                "JupyterLab that still runs, or the system keeps it for itself.\n"
                "Close that program, choose another number, or leave --port away: "
                "then a free port is found."
            )
        return asked
    for port in range(FIRST_PORT, FIRST_PORT + 100):
        if port_is_free(port):
            if port != FIRST_PORT:
                say(f"Port {FIRST_PORT} is taken, so JupyterLab goes to {port}.")
            return port
    raise Stop(f"No free port from {FIRST_PORT} on. Name one: lab --port NUMBER")


# --- The environment ----------------------------------------------------------

DISK_FULL = re.compile(
    r"No space left on device|Disk quota exceeded|not enough space on the disk"
    r"|\[Errno 28\]|\[Errno 122\]|\[WinError 112\]"
)
NO_NETWORK = re.compile(
    r"NewConnectionError|NameResolutionError|ConnectTimeoutError|ReadTimeoutError"
    r"|Read timed out|Max retries exceeded|ProxyError|Cannot connect to proxy"
    r"|getaddrinfo failed|name resolution|Name or service not known"
    r"|nodename nor servname|Connection refused|Network is unreachable"
    r"|No route to host|Connection aborted|RemoteDisconnected|ConnectionResetError"
    r"|IncompleteRead|connection timed out|Failed to connect to",
    re.IGNORECASE,
)


def explain_failure(text: str, log: Path | str) -> str:
    """What went wrong in words, read from what pip or venv printed."""
    if re.search(r"ensurepip is not available|No module named '?ensurepip", text):
        return (
            "This Python comes without `venv`, the part that makes environments.\n"
            "On Debian and Ubuntu: `apt install python3-venv` (with sudo); elsewhere "
            "install Python from https://www.python.org. Then run this again."
        )
    if DISK_FULL.search(text):
        return (
            "The disk is full. The course needs about 2 GB for its environment and as "
            "much again while it installs.\nMake room and run the same command again; "
            f"it goes on where it stopped.\nDetails: {log}"
        )
    if re.search(r"CERTIFICATE_VERIFY_FAILED|SSLError", text):
        return (
            "The package index answered with a certificate that this computer does not "
            "trust; some firewalls and company networks cause that.\nTry another "
            f"network, or ask its administrator how to set up pip.\nDetails: {log}"
        )
    if NO_NETWORK.search(text):
        return (
            "No network: the package index could not be reached. The first start needs "
            "the internet, later ones do not.\nCheck the connection (and the proxy, if "
            f"you have one) and run the same command again.\nDetails: {log}"
        )
    missing = re.search(r"No matching distribution found for (\S+)", text)
    if missing:
        return (
            f"No {missing[1]} is offered for Python {platform.python_version()} on "
            f"{platform.system()} {platform.machine()}, or the package index could not "
            f"be reached.\nTry another Python from 3.11 to 3.14.\nDetails: {log}"
        )
    last = "\n  ".join(text.strip().splitlines()[-3:])
    return (
        f"The installation failed:\n  {last}\nRun the same command again; if it fails "
        f"again, delete the folder .venv and start anew.\nDetails: {log}"
    )


PIP_HAS_BEGUN = re.compile(rb"Collecting|Processing|Requirement already satisfied")


def has_nvidia_gpu() -> bool:
    return bool(shutil.which("nvidia-smi")) or Path("/proc/driver/nvidia").exists()


def read_pins(path: Path) -> dict[str, str]:
    """`name -> version` of a constraints file, names in lower case."""
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if "==" in line and line[0] != "#")
    return {name.strip().lower(): version.strip() for name, version in pairs}


def drop_damaged_packages(site: Path) -> list[str]:
    """Forget each package with a missing or cut file, so that pip brings it anew.

    pip believes a `dist-info` folder, and an installation that was killed leaves
    such folders beside missing files. RECORD, written last, tells what belongs
    there.
    """
    damaged = []
    for info in sorted(site.glob("*.dist-info")):
        try:
            with open(info / "RECORD", encoding="utf-8", newline="") as stream:
                rows = [r for r in csv.reader(stream) if len(r) == 3]
            sizes = {name: int(size) for name, _, size in rows if size}
            whole = all((site / f).stat().st_size == n for f, n in sizes.items())
        except (OSError, ValueError):
            whole = False
        if not whole:
            shutil.rmtree(info)
            damaged.append(info.name.split("-")[0])
    for leftover in site.glob("~*"):  # an uninstall that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    return damaged


def run_logged(
    command: list[str],
    folder: Path,
    env: dict[str, str],
    log: Path,
    patience: float | None = None,
) -> tuple[int, str]:
    """Run a command in `folder`, its output in `log`; return exit code and output.

    With `patience`, a pip that has found nothing after so many seconds is ended:
    a silent host with many addresses would cost its time-out once for each.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab") as stream:
        stream.write(("\n$ " + " ".join(command) + "\n").encode("utf-8", "replace"))
        start = stream.tell()
    with open(log, "ab") as stream:
        child = subprocess.Popen(
            command,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
        )
        deadline = time.monotonic() + (patience or float("inf"))
        try:
            while child.poll() is None:
                if time.monotonic() > deadline:
                    if not PIP_HAS_BEGUN.search(log.read_bytes(), start):
                        child.kill()
                    deadline = float("inf")
                time.sleep(0.1)
        finally:
            if child.poll() is None:
                child.terminate()
                child.wait()
    return child.returncode, log.read_bytes()[start:].decode("utf-8", "replace")


def is_same_folder(one: str, other: Path) -> bool:
    return os.path.exists(one) and os.path.samefile(one, other)


class Environment:
    """The course's own `.venv`: made once, checked at each start, repaired."""

    def __init__(self, root: Path, run: Callable[..., tuple[int, str]] = run_logged):
        self.root = root
        self.folder = root / ".venv"
        self.run = run
        self.bin = self.folder / ("Scripts" if os.name == "nt" else "bin")
        self.python = self.bin / ("python.exe" if os.name == "nt" else "python")
        self.stamp_file = self.folder / "course-stamp.json"
        self.log = self.folder / "install.log"

    def variables(self) -> dict[str, str]:
        """What every child process gets: `.venv` first, nothing that misleads it."""
        env = dict(os.environ)
        for name in ("PYTHONHOME", "PYTHONPATH", "__PYVENV_LAUNCHER__"):
            env.pop(name, None)
        env["PATH"] = str(self.bin) + os.pathsep + env.get("PATH", os.defpath)
        env["VIRTUAL_ENV"] = str(self.folder)
        env["PYTHONUTF8"] = "1"
        env["JUPYTER_PREFER_ENV_PATH"] = "1"
        env.update(PIP_USER="0", PIP_NO_INPUT="1", PIP_DISABLE_PIP_VERSION_CHECK="1")
        return env

    def probe(self) -> dict[str, str] | None:
        """`.venv`'s Python version and package folder; None where it cannot answer."""
        ask = (
            "import json, pip, sys, sysconfig; print(json.dumps({'version': "
            "sys.version.split()[0], 'site': sysconfig.get_path('purelib')}))"
        )
        try:
            answer = subprocess.run(
                [str(self.python), "-c", ask],
                env=self.variables(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                check=True,
            )
            found = json.loads(answer.stdout.decode("utf-8"))
            return {str(key): str(value) for key, value in found.items()}
        except (OSError, subprocess.CalledProcessError, ValueError):
            return None

    def digest(self, version: str) -> str:
        """Changes when what has to be installed changes."""
        mixed = hashlib.sha256(version.encode())
        for name in ("pyproject.toml", "constraints.txt"):
            mixed.update((self.root / name).read_bytes().replace(b"\r\n", b"\n"))
        return mixed.hexdigest()

    def read_stamp(self) -> dict[str, Any] | None:
        try:
            stamp = json.loads(self.stamp_file.read_text(encoding="utf-8"))
            return {k: stamp[k] for k in ("digest", "place", "extras")}
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def ensure(self, extra: str) -> None:
        """Make sure that core and `extra` are installed; cheap when they are."""
        found, stamp = self.probe(), self.read_stamp()
        # Scripts and the editable course hold the folder's name inside them.
        moved = stamp is not None and not is_same_folder(stamp["place"], self.folder)
        if found is None or moved:
            found, stamp = self.make(), None
        digest = self.digest(found["version"])
        extras = set(stamp["extras"]) if stamp else set()
        if stamp and stamp["digest"] == digest and extra in extras:
            return
        site = Path(found["site"])
        if stamp is None:
            damaged = drop_damaged_packages(site)
            if damaged:
                say("Repairing " + ", ".join(damaged) + ".")
        extras |= COVERS.get(extra, {extra})
        # Without its stamp a half-changed environment is known as such, even when
        # the machine is switched off in between.
        if stamp:
            self.stamp_file.unlink()
        try:
            self.install(sorted(extras), site)
        except Stop as stop:
            if stamp and stop.untouched:  # what stood, still stands
                write_atomically(self.stamp_file, json.dumps(stamp).encode())
            raise
        whole = {"digest": digest, "place": str(self.folder), "extras": sorted(extras)}
        write_atomically(self.stamp_file, json.dumps(whole).encode())

    def make(self) -> dict[str, str]:
        """Make an empty `.venv`, in the place of one that does not work."""
        if self.folder.exists() or self.folder.is_symlink():
            say("The environment in .venv does not work here; it is made anew.")
            if self.folder.is_symlink() or self.folder.is_file():
                self.folder.unlink()
            else:
                shutil.rmtree(self.folder)
        say("Making the environment .venv (once).")
        # An activated environment must not become the parent of this one.
        base = getattr(sys, "_base_executable", None) or sys.executable
        command = [base, "-m", "venv", str(self.folder)]
        code, text = self.run(command, self.root, self.variables(), self.log)
        found = self.probe() if code == 0 else None
        if found is None:
            if shutil.disk_usage(self.root).free < 100e6:  # venv keeps that to itself
                text = "No space left on device"
            raise Stop(explain_failure(text, self.log))
        return found

    def pip(self, arguments: list[str], patience: float | None = None) -> None:
        command = [str(self.python), "-m", "pip", "install", "-c", "constraints.txt"]
        command += arguments
        code, text = self.run(command, self.root, self.variables(), self.log, patience)
        if code:
            untouched = "Installing collected packages" not in text
            raise Stop(explain_failure(text, self.log), untouched)

    def install(self, extras: list[str], site: Path) -> None:
        """Bring core and `extras` to the pinned versions."""
        began = time.monotonic()
        say(f"Installing, which takes minutes the first time. Log: {self.log}")
        version = read_pins(self.root / "constraints.txt")["torch"]
        there = any(site.glob(f"torch-{version}*.dist-info"))
        if platform.system() == "Linux" and not has_nvidia_gpu() and not there:
            say("  PyTorch for the CPU (about 200 MB)")
            # --no-deps: the rest comes from the usual index, at the versions tested.
            source = ["--index-url", CPU_INDEX, "--retries", "0", "--timeout", "10"]
            arguments = ["--no-deps", *source, f"torch=={version}"]
            try:
                self.pip(arguments, CPU_INDEX_PATIENCE)
            except Stop as stop:
                if not stop.untouched:
                    raise
                # The next call takes the pinned torch from the usual index, where
                # on Linux it brings 3 GB of CUDA that nobody here can use.
                say("  PyTorch's CPU index did not answer; the usual one has to do")
        say("  the course with " + ", ".join(f"[{name}]" for name in extras))
        self.pip(["-e", f".[{','.join(extras)}]"])
        say(f"  done in {time.monotonic() - began:.0f} s")


def content_digest(notebook: bytes) -> str:
    """Changes when a cell does; what a build notes beside the cells does not count."""
    try:
        cells = json.loads(notebook)["cells"]
        content = json.dumps([[c["cell_type"], c["source"]] for c in cells]).encode()
    except (ValueError, KeyError, TypeError):
        content = notebook
    return hashlib.sha256(content).hexdigest()


def without_printed_numbers(notebook: bytes) -> bytes:
    """A learner guesses first: pictures and questions stay, what was printed goes."""
    try:
        content = json.loads(notebook)
        for cell in content["cells"]:
            if cell["cell_type"] == "code":
                shown = [one for one in cell["outputs"] if is_picture(one)]
                cell["outputs"], cell["execution_count"] = shown, None
                for one in shown:
                    if "execution_count" in one:
                        one["execution_count"] = None
    except (ValueError, KeyError, TypeError):
        return notebook
    return (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode("utf-8")


def is_picture(output: dict[str, Any]) -> bool:
    """Tell a picture or a question from something printed."""
    return bool({"image/png", "text/markdown"} & set(output.get("data", {})))


def copy_notebooks(root: Path) -> list[str]:
    """Lay copies of all notebooks into `work/`; return what to tell about newer ones.

    A copy that exists is never touched. Where the course has changed a notebook
    since it was copied, its new version is laid beside as `NAME.v2.ipynb`, once.
    """
    work, news = root / "work", []
    record_file = work / ".copies.json"
    try:
        record = dict(json.loads(record_file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        record = {}
    before = dict(record)
    for source in sorted(p for room in COPIED for p in (root / room).glob("*.ipynb")):
        content = source.read_bytes()
        digest = content_digest(content)
        content = without_printed_numbers(content)
        name = f"{source.parent.name}/{source.name}"
        copy = work / name
        if not copy.exists():
            write_atomically(copy, content)
        elif record.get(name, digest) != digest:
            number = 2
            while copy.with_suffix(f".v{number}.ipynb").exists():
                number += 1
            newer = copy.with_suffix(f".v{number}.ipynb")
            write_atomically(newer, content)
            news.append(
                f"The course has a newer {name}; yours is untouched, and the new "
                f"one lies beside it as {newer.name}."
            )
        record[name] = digest
    work.mkdir(exist_ok=True)
    if record != before:
        text = json.dumps(record, indent=1, sort_keys=True) + "\n"
        write_atomically(record_file, text.encode())
    return news


def start_page(work: Path) -> str:
    """The lowest-numbered chapter, as JupyterLab's address of it."""
    pages = sorted(p.name for p in (work / "chapters").glob("[0-9]*.ipynb"))
    own = [name for name in pages if not re.search(r"\.v\d+\.ipynb$", name)]
    return f"/lab/tree/chapters/{own[0]}" if own else "/lab"


def lab_command(env: Environment, port: int, browser: bool) -> list[str]:
    work = env.root / "work"
    command = [str(env.python), "-m", "jupyterlab", "--ServerApp.ip=127.0.0.1"]
    command += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    command += [f"--ServerApp.root_dir={work}", "--ServerApp.answer_yes=True"]
    command += [f"--LabApp.default_url={start_page(work)}"]
    command += ["--log-level=WARN", "--LabApp.log_level=WARN"]  # the address remains
    command += ["--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
    if not browser:
        command.append("--no-browser")
    if hasattr(os, "getuid") and os.getuid() == 0:
        command.append("--allow-root")
    return command


def lab_settings(env: Environment) -> Path:
    """Settings of our JupyterLab only: no news pop-up, no second saver of notebooks."""
    folder = env.folder / "etc" / "course"
    news = "@jupyterlab/apputils-extension:announcements"
    page = {"disabledExtensions": {news: True, "jupyterlab-jupytext": True}}
    server = {
        "ServerApp": {"jpserver_extensions": {"jupytext": False}},
        # Otherwise each kernel warns that others on this machine may listen in.
        "KernelManager": {"transport_encryption": "auto"},
    }
    for name, content in (
        ("labconfig/page_config.json", page),
        ("jupyter_server_config.json", server),
    ):
        write_atomically(folder / name, json.dumps(content).encode())
    return folder


def lab(env: Environment, options: argparse.Namespace) -> int:
    port = choose_port(options.port)
    env.ensure("lab")
    for line in copy_notebooks(env.root):
        say(line)
    variables = env.variables()
    paths = [str(lab_settings(env)), os.environ.get("JUPYTER_CONFIG_PATH", "")]
    variables["JUPYTER_CONFIG_PATH"] = os.pathsep.join(filter(None, paths))
    say("JupyterLab starts on your copies in work/. Ctrl+C here ends it.")
    # A plain `kill` must not leave JupyterLab running without its parent.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    child = subprocess.Popen(
        lab_command(env, port, not options.no_browser), env=variables, cwd=env.root
    )
    try:
        return child.wait()
    except KeyboardInterrupt:
        # The terminal sends Ctrl+C to JupyterLab too, which then ends its kernels.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=10)
        say("JupyterLab has ended; your work is in work/.")
        return 0
    finally:
        if child.poll() is None:
            child.terminate()
            child.wait()


def steps_of_test(env: Environment, quick: bool) -> list[tuple[str, list[str]]]:
    code = ["course.py", "course_lib", "tools", "tests", "benchmarks"]
    notebooks = ["chapters", "exercises", "solutions", "notebooks"]
    rooms = ("chapters", "solutions")
    pages = sorted(p for room in rooms for p in (env.root / room).glob("*.ipynb"))
    names = [p.relative_to(env.root).as_posix() for p in pages]
    pytest = ["pytest", "tests"]
    if quick:
        # A file in one process: what a file sets up once is not set up twice.
        processes = str(min(4, os.cpu_count() or 1))
        pytest += ["-m", "not slow", "-n", processes, "--dist", "loadfile"]
    else:
        pytest += ["--nbval-lax", "--nbval-cell-timeout=600", *names]
    return [
        ("ruff check", ["ruff", "check", *code, *notebooks]),
        ("ruff format", ["ruff", "format", "--check", *code]),
        ("mypy", ["mypy", "--strict", "course_lib"]),
        ("build --check", ["tools.build", "--check"]),
        ("pytest", pytest),
    ]


def test(env: Environment, options: argparse.Namespace) -> int:
    env.ensure("dev")
    variables = env.variables()
    variables.update(OMP_NUM_THREADS="1", MPLBACKEND="agg")
    if options.faces:
        variables["COURSE_FACES"] = "1"  # here a missing browser is a failure
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        # The reader's own Jupyter settings must not decide whether a test passes.
        for name in ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR"):
            variables["JUPYTER_" + name] = os.path.join(scratch, name.lower())
        variables["IPYTHONDIR"] = os.path.join(scratch, "ipython")
        for name, command in steps_of_test(env, options.quick):
            say(f"\n== {name}")
            full = [str(env.python), "-m", *command]
            code = subprocess.run(full, env=variables, cwd=env.root).returncode
            if code:
                say(f"\nStopped: {name} failed (exit code {code}); see above.")
                return code if code > 0 else 1
    return 0


def run_tool(env: Environment, extra: str, tool: str, arguments: list[str]) -> int:
    env.ensure(extra)
    command = [str(env.python), "-m", tool, *arguments]
    return subprocess.run(command, env=env.variables(), cwd=env.root).returncode


def build(env: Environment, options: argparse.Namespace) -> int:
    names = ("check", "outputs", "force")
    flags = [f"--{name}" for name in names if getattr(options, name)]
    return run_tool(env, "dev", "tools.build", flags)


def slides(env: Environment, options: argparse.Namespace) -> int:
    return run_tool(env, "instructor", "tools.slides", options.chapters)


def bench(env: Environment, options: argparse.Namespace) -> int:
    if options.cpu and options.what != "device":
        raise Stop("--cpu goes with `bench device`; the others need no GPU.")
    if options.quick and options.what not in ("ppo", "rlhf"):
        raise Stop("--quick goes with `bench ppo` and `bench rlhf`.")
    # Where torch comes without a GPU's compiler there is nothing to measure on one.
    gpu = has_nvidia_gpu() and not options.cpu
    extra = {
        "kernels": "bench",
        "ppo": "bench",
        "rlhf": "lab",
        "device": "gpu" if gpu else "lab",
    }
    flags = [f"--{name}" for name in ("cpu", "quick") if getattr(options, name)]
    return run_tool(env, extra[options.what], f"benchmarks.{options.what}", flags)


def train(env: Environment, options: argparse.Namespace) -> int:
    return run_tool(env, "train", "course_lib.train", options.arguments)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="course.py",
        description="PPO from Markov decision processes to RLHF. Start with: lab",
        epilog="The first use of a verb installs what it needs into .venv (2 to 5 "
        "minutes with a good connection); after that it starts in seconds.",
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    def verb(run: Callable[..., int], text: str) -> argparse.ArgumentParser:
        added = verbs.add_parser(run.__name__, help=text, description=text)
        added.set_defaults(run=run)
        return added

    one = verb(lab, "open JupyterLab on your own copies in work/ (starts in seconds)")
    one.add_argument(
        "--port",
        type=port_number,
        metavar="N",
        help="where JupyterLab listens (else the first free one from 8888 on)",
    )
    one.add_argument("--no-browser", action="store_true", help="only print the address")
    one = verb(test, "run every test and every notebook (up to 25 minutes)")
    which = one.add_mutually_exclusive_group()
    which.add_argument(
        "--quick", action="store_true", help="no notebooks, no browser (3 minutes)"
    )
    which.add_argument(
        "--faces",
        action="store_true",
        help="all, and in a browser too, which must be there (up to 45 minutes)",
    )
    one = verb(build, "build the notebooks whose master has changed (minutes)")
    one.add_argument("--check", action="store_true", help="only compare (seconds)")
    one.add_argument(
        "--outputs",
        action="store_true",
        help="with --check: execute again and compare outputs too (minutes)",
    )
    one.add_argument(
        "--force", action="store_true", help="replace notebooks edited by hand"
    )
    one = verb(slides, "make one HTML file of slides per chapter (about a minute each)")
    one.add_argument("chapters", nargs="*", metavar="NN", help="such as 02 (else all)")
    one = verb(bench, "time the library beside its peers (2 to 15 minutes)")
    one.add_argument(
        "what",
        choices=("kernels", "ppo", "rlhf", "device"),
        help="kernels, ppo, rlhf: on the CPU, beside their peers; device: on a GPU",
    )
    one.add_argument("--quick", action="store_true", help="ppo, rlhf: half a minute")
    one.add_argument(
        "--cpu", action="store_true", help="device: a short form on the CPU"
    )
    verb(train, "run a training program; `train --help` lists them (docs/TRAINING.md)")
    return parser


def main(arguments: list[str] | None = None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a folder's name may not fit the console
            stream.reconfigure(errors="backslashreplace")
    parser = make_parser()
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["train"]:  # all that follows is the program's own
        options = argparse.Namespace(verb="train", run=train, arguments=given[1:])
    else:
        options = parser.parse_args(given)
    if options.verb == "build" and options.outputs and not options.check:
        parser.error("build --outputs only goes with --check")
    try:
        check_python()
        if not (ROOT / "constraints.txt").is_file():
            raise Stop(
                "course.py needs the rest of the course beside it: download or clone "
                "the whole folder, then run it there."
            )
        return int(options.run(Environment(ROOT), options))
    except Stop as stop:
        print(f"\n{stop}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. The same command goes on from here.", file=sys.stderr)
        return 130
    except OSError as error:
        if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", None)):
            words = explain_failure("No space left on device", str(error))
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            words = (
                f"Not allowed to write here: {error.filename or ROOT}\nCopy the course "
                "to a folder of your own, or close the program that uses that file."
            )
        else:
            raise
        print(f"\n{words}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
