"""The front door without its slow half: refusals, repairs, copies, words."""

import ast
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("front_door", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


course = _load(ROOT / "course.py")


# The file itself


def test_a_python_of_2019_can_read_the_file_and_needs_nothing_else():
    text = (ROOT / "course.py").read_text(encoding="utf-8")
    tree = ast.parse(text, feature_version=(3, 8))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(str(node.module).split(".")[0])
    assert imported <= sys.stdlib_module_names
    # What came after 3.8 must not be needed before the refusal is printed.
    assert not imported & {"tomllib", "zoneinfo", "graphlib"}


@pytest.mark.parametrize("version", [(3, 8), (3, 10), (3, 15), (4, 0)])
def test_a_python_without_torch_wheels_is_refused_with_what_to_install(version):
    with pytest.raises(course.Stop) as stop:
        course.check_python(version, "Linux", "x86_64", 64)
    found = ".".join(map(str, version))
    age = "too old" if version < (3, 11) else "too new"
    assert f"Python {found}, {age}" in str(stop.value)
    assert "Install Python 3.11 to 3.14" in str(stop.value)


@pytest.mark.parametrize("minor", [11, 12, 13, 14])
def test_every_python_with_torch_wheels_is_welcome(minor):
    for system, machine in (
        ("Linux", "x86_64"),
        ("Linux", "aarch64"),
        ("Darwin", "arm64"),
        ("Windows", "AMD64"),
    ):
        course.check_python((3, minor), system, machine, 64)


def test_the_range_of_pythons_is_that_of_the_package_and_of_conda():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    oldest = ".".join(map(str, course.OLDEST))
    assert project["project"]["requires-python"] == f">={oldest}"
    conda = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    behind_newest = f"{course.NEWEST[0]}.{course.NEWEST[1] + 1}"
    assert f"python >={oldest},<{behind_newest}" in conda["dependencies"]


def test_32_bits_and_intel_macs_are_refused_in_words():
    with pytest.raises(course.Stop, match="64 bits"):
        course.check_python((3, 12), "Windows", "AMD64", 32)
    with pytest.raises(course.Stop, match="Intel Mac"):
        course.check_python((3, 12), "Darwin", "x86_64", 64)


# From anywhere


@pytest.fixture
def far_away(tmp_path: Path) -> Path:
    """The front door in a folder whose name has spaces and letters of everywhere."""
    folder = tmp_path / "Kurs ä ö 课程" / "ppo course"
    folder.mkdir(parents=True)
    for name in ("course.py", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "cp1252"])
def test_help_runs_from_another_folder_on_any_console(far_away, tmp_path, encoding):
    done = subprocess.run(
        [sys.executable, str(far_away / "course.py"), "--help"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    for verb in (b"lab", b"test", b"build", b"slides", b"bench"):
        assert b"\n    " + verb + b" " in done.stdout
    assert not (far_away / ".venv").exists()


def test_a_folder_whose_name_does_not_fit_the_console_is_printed_all_the_same(far_away):
    script = """
import sys
import course

def ensure(self, extra):
    course.say(str(self.root))
    raise course.Stop("enough")

course.Environment.ensure = ensure
sys.exit(course.main(["slides"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=far_away,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 1, done.stderr
    assert b"ppo course" in done.stdout and b"enough" in done.stderr


def test_every_verb_explains_itself_and_its_time(capsys):
    for verb in ("lab", "test", "build", "slides", "bench"):
        with pytest.raises(SystemExit) as done:
            course.main([verb, "--help"])
        assert done.value.code == 0
        words = capsys.readouterr().out
        assert "second" in words or "minute" in words


def test_a_front_door_without_its_house_says_so(far_away, monkeypatch, capsys):
    (far_away / "constraints.txt").unlink()
    monkeypatch.setattr(course, "ROOT", far_away)
    assert course.main(["lab"]) == 1
    assert "the rest of the course" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(28, "No space left on device", "x"), "The disk is full"),
        (PermissionError(13, "Permission denied", "x"), "Not allowed to write here: x"),
    ],
)
def test_a_full_or_closed_disk_ends_in_words(error, words, monkeypatch, capsys):
    def fail(self, extra):
        raise error

    monkeypatch.setattr(course.Environment, "ensure", fail)
    assert course.main(["build", "--check"]) == 1
    assert words in capsys.readouterr().err


def test_a_mistake_of_ours_is_not_hidden_behind_words(monkeypatch):
    def fail(self, extra):
        raise FileNotFoundError(2, "No such file", "x")

    monkeypatch.setattr(course.Environment, "ensure", fail)
    with pytest.raises(FileNotFoundError):
        course.main(["build"])


# The environment, with a stand-in for pip


class FakePip:
    """Stands for venv and pip: notes the calls, writes what they would write."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.answers: dict[str, tuple[int, str]] = {}
        self.works = False

    def __call__(self, command, folder, env, log, patience=None):
        assert env["PYTHONUTF8"] == "1" and "PYTHONHOME" not in env
        arguments = [str(part) for part in command[2:]]
        self.calls.append(arguments)
        for key, answer in self.answers.items():
            if key in " ".join(arguments):
                return answer
        if arguments[0] == "venv":
            (folder / ".venv" / "site").mkdir(parents=True)
            self.works = True
        return 0, "Successfully installed"

    @property
    def installed(self) -> list[str]:
        return [call[-1] for call in self.calls if call[0] == "pip"]


@pytest.fixture
def fake(far_away, monkeypatch) -> Iterator[tuple[FakePip, Path]]:
    pip = FakePip()

    def probe(self):
        site = str(far_away / ".venv" / "site")
        return {"version": "3.12.1", "site": site} if pip.works else None

    monkeypatch.setattr(course.Environment, "probe", probe)
    monkeypatch.setattr(course.platform, "system", lambda: "Linux")
    monkeypatch.setattr(course, "has_nvidia_gpu", lambda: False)
    yield pip, far_away


def _ensure(fake, extra: str = "lab") -> None:
    pip, folder = fake
    course.Environment(folder, pip).ensure(extra)


def test_the_second_start_calls_nothing(fake):
    pip, _ = fake
    _ensure(fake)
    assert [call[0] for call in pip.calls] == ["venv", "pip", "pip"]
    pip.calls.clear()
    _ensure(fake)
    assert pip.calls == []


def test_what_brings_lab_along_serves_lab_too(fake):
    pip, _ = fake
    _ensure(fake, "dev")
    pip.calls.clear()
    _ensure(fake, "lab")
    assert pip.calls == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    for name, covered in course.COVERS.items():
        brought = {extra for line in extras[name] for extra in Requirement(line).extras}
        assert covered <= brought | {name}


def test_another_verb_adds_its_extra_and_keeps_the_first(fake):
    pip, _ = fake
    _ensure(fake, "instructor")
    _ensure(fake, "lab")
    assert pip.installed[-1] == ".[instructor,lab]"
    assert "-e" in pip.calls[-1]
    pip.calls.clear()
    _ensure(fake, "instructor")
    assert pip.calls == []


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_changed_requirements_are_installed_at_the_next_start(fake, name):
    pip, folder = fake
    _ensure(fake)
    pip.calls.clear()
    with open(folder / name, "a", encoding="utf-8") as stream:
        stream.write("# changed\n")
    _ensure(fake)
    assert pip.installed[-1] == ".[lab]"


def test_a_checkout_with_other_line_ends_is_no_change(fake):
    pip, folder = fake
    _ensure(fake)
    pip.calls.clear()
    path = folder / "pyproject.toml"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    _ensure(fake)
    assert pip.calls == []


def test_an_environment_whose_python_does_not_run_is_made_anew(fake, capsys):
    pip, folder = fake
    _ensure(fake)
    (folder / ".venv" / "ruin").write_text("x", encoding="utf-8")
    pip.works = False
    pip.calls.clear()
    _ensure(fake)
    assert [call[0] for call in pip.calls] == ["venv", "pip", "pip"]
    assert not (folder / ".venv" / "ruin").exists()
    assert "made anew" in capsys.readouterr().out


def test_a_disk_too_full_for_an_empty_environment_is_named(fake, monkeypatch):
    pip, folder = fake
    pip.answers["venv"] = (1, "Error: Command ensurepip returned exit status 1")
    with pytest.raises(course.Stop, match="installation failed"):
        _ensure(fake)
    usage = shutil.disk_usage(folder)._replace(free=0)
    monkeypatch.setattr(course.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(course.Stop, match="disk is full"):
        _ensure(fake)


def test_an_environment_that_was_moved_is_made_anew(fake):
    pip, folder = fake
    _ensure(fake)
    pip.calls.clear()
    stamp = folder / ".venv" / "course-stamp.json"
    told = json.loads(stamp.read_text(encoding="utf-8"))
    told["place"] = str(folder.parent / "where it was")
    stamp.write_text(json.dumps(told), encoding="utf-8")
    _ensure(fake)
    assert pip.calls[0][0] == "venv"


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"digest": "x"}'])
def test_a_missing_or_broken_stamp_means_install_again(fake, text):
    pip, folder = fake
    _ensure(fake)
    pip.calls.clear()
    stamp = folder / ".venv" / "course-stamp.json"
    stamp.unlink()
    if text is not None:
        stamp.write_text(text, encoding="utf-8")
    _ensure(fake)
    assert pip.installed[-1] == ".[lab]"
    assert json.loads(stamp.read_text(encoding="utf-8"))["extras"] == ["lab"]


OFFLINE = (1, "NewConnectionError(...): Failed to establish a new connection")
HALFWAY = (1, "Installing collected packages: x\nNo space left on device")


def test_no_network_for_one_verb_leaves_the_others_working(fake):
    pip, _ = fake
    _ensure(fake)
    pip.answers["-e"] = OFFLINE
    with pytest.raises(course.Stop, match="No network"):
        _ensure(fake, "dev")
    pip.calls.clear()
    _ensure(fake)
    assert pip.calls == []


def test_an_install_that_broke_halfway_is_not_trusted(fake):
    pip, _ = fake
    _ensure(fake)
    pip.answers["-e"] = HALFWAY
    with pytest.raises(course.Stop, match="disk is full"):
        _ensure(fake, "dev")
    pip.answers.clear()
    pip.calls.clear()
    _ensure(fake)
    assert pip.installed[-1] == ".[lab]"


def test_an_install_that_was_killed_is_not_trusted(fake):
    pip, folder = fake
    _ensure(fake)

    def die(*_, **__):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        course.Environment(folder, die).ensure("dev")
    pip.calls.clear()
    _ensure(fake)
    assert pip.installed[-1] == ".[lab]"


def test_linux_without_a_gpu_asks_for_the_cpu_build_first(fake):
    pip, _ = fake
    _ensure(fake)
    first, second = (call for call in pip.calls if call[0] == "pip")
    assert first[-1] == "torch==2.13.0"
    assert first[first.index("--index-url") + 1].endswith("/whl/cpu")
    assert first[first.index("--retries") + 1] == "0"
    assert first[first.index("--timeout") + 1] == "10"
    assert "--index-url" not in second
    assert second[second.index("-c") + 1] == "constraints.txt"


def test_where_the_cpu_index_is_silent_the_usual_one_serves_torch(fake):
    pip, _ = fake
    pip.answers["--index-url"] = OFFLINE
    _ensure(fake)
    assert pip.installed == ["torch==2.13.0", ".[lab]"]


def test_a_disk_that_fills_up_with_torch_is_not_tried_a_second_time(fake):
    pip, _ = fake
    pip.answers["--index-url"] = HALFWAY
    with pytest.raises(course.Stop, match="disk is full"):
        _ensure(fake)
    assert pip.installed == ["torch==2.13.0"]


@pytest.mark.parametrize(
    ("system", "gpu"), [("Linux", True), ("Darwin", False), ("Windows", False)]
)
def test_elsewhere_torch_comes_with_the_rest(fake, monkeypatch, system, gpu):
    pip, _ = fake
    monkeypatch.setattr(course.platform, "system", lambda: system)
    monkeypatch.setattr(course, "has_nvidia_gpu", lambda: gpu)
    _ensure(fake)
    assert pip.installed == [".[lab]"]


def test_a_torch_that_is_there_is_not_fetched_again(fake):
    pip, folder = fake
    _ensure(fake)
    pip.calls.clear()
    (folder / ".venv" / "site" / "torch-2.13.0+cpu.dist-info").mkdir()
    _ensure(fake, "dev")
    assert pip.installed == [".[dev,gpu,lab,tensorboard,train]"]


def test_a_gpu_shows_by_its_tool_on_the_path(tmp_path, monkeypatch):
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has an NVIDIA driver")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not course.has_nvidia_gpu()
    tool = tmp_path / ("nvidia-smi.exe" if os.name == "nt" else "nvidia-smi")
    tool.write_text("", encoding="utf-8")
    tool.chmod(0o755)
    assert course.has_nvidia_gpu()


def test_children_see_our_environment_and_nobody_elses(far_away, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("PYTHONHOME", "/elsewhere")
    monkeypatch.setenv("VIRTUAL_ENV", "/elsewhere")
    here = course.Environment(far_away)
    env = here.variables()
    assert "PYTHONPATH" not in env and "PYTHONHOME" not in env
    assert env["VIRTUAL_ENV"] == str(far_away / ".venv")
    assert env["PATH"].split(os.pathsep)[0] == str(here.python.parent)


# Repair


def _package(site: Path, name: str, body: bytes = b"x = 1\n") -> None:
    (site / name).mkdir(parents=True)
    (site / name / "__init__.py").write_bytes(body)
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    record = f"{name}/__init__.py,sha256=abc,{len(body)}\n"
    record += f"{name}/__pycache__/__init__.pyc,,\n{name}-1.0.dist-info/RECORD,,\n"
    (info / "RECORD").write_text(record, encoding="utf-8")


def test_a_package_with_a_missing_or_cut_file_is_forgotten(tmp_path):
    for name in ("whole", "gone", "cut", "unfinished"):
        _package(tmp_path, name)
    shutil.rmtree(tmp_path / "gone")
    (tmp_path / "cut" / "__init__.py").write_bytes(b"x")
    (tmp_path / "unfinished-1.0.dist-info" / "RECORD").unlink()
    (tmp_path / "~orch").mkdir()
    assert course.drop_damaged_packages(tmp_path) == ["cut", "gone", "unfinished"]
    assert sorted(p.name for p in tmp_path.glob("*.dist-info")) == [
        "whole-1.0.dist-info"
    ]
    assert not (tmp_path / "~orch").exists()


def test_the_environment_of_this_test_run_counts_as_whole(tmp_path):
    import packaging

    site = Path(packaging.__file__).parent.parent
    shutil.copytree(site / "packaging", tmp_path / "packaging")
    for info in site.glob("packaging-*.dist-info"):
        shutil.copytree(info, tmp_path / info.name)
    assert course.drop_damaged_packages(tmp_path) == []


def test_a_pip_that_finds_nothing_is_ended_in_time(tmp_path):
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    start = time.monotonic()
    code, _ = course.run_logged(command, tmp_path, dict(os.environ), tmp_path / "l", 1)
    assert code != 0 and time.monotonic() - start < 30


def test_a_pip_that_has_begun_may_take_its_time(tmp_path):
    script = "import time; print('Collecting torch', flush=True); time.sleep(2)"
    command = [sys.executable, "-c", script]
    log = tmp_path / "log"
    log.write_text("an older log\n", encoding="utf-8")
    code, text = course.run_logged(command, tmp_path, dict(os.environ), log, 1)
    assert code == 0 and text.strip() == "Collecting torch"
    assert log.read_text(encoding="utf-8").startswith("an older log")


# Words for what pip says (as printed by pip 23 to 26 on the three systems)

NO_NETWORK = [
    "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError("
    "'<pip._vendor.urllib3.connection.HTTPSConnection object at 0x7f8966c26010>: Failed"
    " to establish a new connection: [Errno -3] Temporary failure in name resolution')'"
    ": /simple/torch/\nERROR: No matching distribution found for torch",
    "WARNING: Retrying (Retry(total=0)) after connection broken by 'NameResolution"
    "Error(\"HTTPSConnection(host='index.invalid', port=443): Failed to resolve 'index."
    "invalid' ([Errno -2] Name or service not known)\")': /simple/x/\nERROR: Could not "
    "find a version that satisfies the requirement x (from versions: none)",
    "Failed to establish a new connection: [Errno 11001] getaddrinfo failed')",
    "[Errno 8] nodename nor servname provided, or not known",
    "NewConnectionError(\"HTTPConnection(host='127.0.0.1', port=9): Failed to establish"
    ' a new connection: [Errno 111] Connection refused")',
    "pip._vendor.urllib3.exceptions.ReadTimeoutError: HTTPSConnectionPool(host='files."
    "invalid', port=443): Read timed out.",
    "ConnectTimeoutError(<pip._vendor.urllib3.connection.HTTPSConnection object>, "
    "'Connection to index.invalid timed out. (connect timeout=15)')",
    "ProxyError('Cannot connect to proxy.', OSError('Tunnel connection failed: 403'))",
    "ProtocolError('Connection aborted.', ConnectionResetError(104, 'reset by peer'))",
]


@pytest.mark.parametrize("text", NO_NETWORK)
def test_no_network_is_recognised(text):
    assert course.explain_failure(text, Path("a log")).startswith("No network")


@pytest.mark.parametrize(
    "text",
    [
        "ERROR: Could not install packages due to an OSError: [Errno 28] No space left "
        "on device",
        "OSError: [WinError 112] There is not enough space on the disk",
        "OSError: [Errno 122] Disk quota exceeded",
    ],
)
def test_a_full_disk_is_recognised_even_after_network_trouble(text):
    for before in ("", NO_NETWORK[0] + "\n"):
        assert course.explain_failure(before + text, Path("x")).startswith("The disk")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "The virtual environment was not created successfully because ensurepip is "
            "not available.  On Debian/Ubuntu systems, you need to install the python3-"
            "venv package",
            "apt install python3-venv",
        ),
        ("/usr/bin/python3: No module named ensurepip", "apt install python3-venv"),
        (
            "SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] "
            "certificate verify failed: self-signed certificate in chain'))': "
            "Max retries exceeded",
            "certificate",
        ),
        (
            "ERROR: No matching distribution found for torch==2.13.0",
            "No torch==2.13.0 is offered for Python",
        ),
        ("ERROR: something nobody has seen before", "nobody has seen before"),
    ],
)
def test_other_failures_say_what_to_do(text, words):
    told = course.explain_failure(text, Path("a log"))
    assert words in told
    assert "Traceback" not in told


# Ports


def test_a_port_that_is_asked_for_and_taken_is_refused():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(course.Stop, match=f"Port {port} is taken"):
            course.choose_port(port)
    assert course.choose_port(port) == port


def test_without_a_wish_the_next_free_port_is_taken_and_told(monkeypatch, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        first = taken.getsockname()[1]
        monkeypatch.setattr(course, "FIRST_PORT", first)
        chosen = course.choose_port(None)
    assert first < chosen < first + 100
    told = capsys.readouterr().out
    assert f"Port {first} is taken" in told and str(chosen) in told


# A learner's copies


@pytest.fixture
def rooms(far_away) -> Path:
    for room in course.COPIED:
        (far_away / room).mkdir()
        (far_away / room / "02_walk.ipynb").write_text(f"{room} 1", encoding="utf-8")
    (far_away / "chapters" / "02_walk.md").write_text("master", encoding="utf-8")
    return far_away


def _texts(work: Path) -> dict[str, str]:
    return {
        path.relative_to(work).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(work.rglob("*.ipynb"))
    }


FIRST = {f"{room}/02_walk.ipynb": f"{room} 1" for room in course.COPIED}


def test_all_notebooks_are_copied_and_only_those(rooms):
    assert course.copy_notebooks(rooms) == []
    assert _texts(rooms / "work") == FIRST
    assert not list((rooms / "work").rglob("*.md"))
    assert not list((rooms / "work").rglob(".draft-*"))


def test_a_learners_answer_stays_whatever_happens_around_it(rooms):
    course.copy_notebooks(rooms)
    answer = rooms / "work" / "exercises" / "02_walk.ipynb"
    answer.write_text("my answer", encoding="utf-8")
    source = rooms / "exercises" / "02_walk.ipynb"
    record = rooms / "work" / ".copies.json"
    for change in ("nothing", "source", "source again", "record lost", "record broken"):
        if change.startswith("source"):
            source.write_text(change, encoding="utf-8")
        elif change == "record lost":
            record.unlink()
        elif change == "record broken":
            record.write_text("[1, 2", encoding="utf-8")
        course.copy_notebooks(rooms)
        assert answer.read_text(encoding="utf-8") == "my answer", change


def test_a_rebuilt_notebook_with_the_same_cells_is_no_newer_version(rooms):
    source = rooms / "exercises" / "02_walk.ipynb"
    cells = [{"cell_type": "code", "source": ["1 + 1"], "outputs": []}]
    source.write_text(json.dumps({"cells": cells, "metadata": {"hash": "one"}}))
    (rooms / "work" / "exercises" / "02_walk.ipynb").unlink(missing_ok=True)
    course.copy_notebooks(rooms)
    source.write_text(json.dumps({"cells": cells, "metadata": {"hash": "two"}}))
    assert course.copy_notebooks(rooms) == []
    cells[0]["source"] = ["1 + 2"]
    source.write_text(json.dumps({"cells": cells, "metadata": {"hash": "two"}}))
    assert len(course.copy_notebooks(rooms)) == 1


def test_a_copy_keeps_the_pictures_and_loses_the_numbers_to_be_guessed(rooms):
    picture = {"output_type": "display_data", "data": {"image/png": "iVBO"}}
    asked = {"output_type": "execute_result", "data": {"text/markdown": "**When?**"}}
    asked["execution_count"] = 3
    printed = {"output_type": "stream", "name": "stdout", "text": ["22.25 steps\n"]}
    value = {"output_type": "execute_result", "data": {"text/plain": "22.25"}}
    cell = {
        "cell_type": "code",
        "source": ["play()"],
        "execution_count": 3,
        "outputs": [printed, picture, value, asked],
    }
    prose = {"cell_type": "markdown", "source": ["θ"]}
    source = rooms / "chapters" / "02_walk.ipynb"
    text = json.dumps({"cells": [prose, cell], "metadata": {}})
    source.write_text(text, encoding="utf-8")
    course.copy_notebooks(rooms)
    copy = json.loads((rooms / "work/chapters/02_walk.ipynb").read_text("utf-8"))
    assert copy["cells"][0] == prose
    assert copy["cells"][1]["outputs"] == [picture, asked | {"execution_count": None}]
    assert copy["cells"][1]["execution_count"] is None
    assert source.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("port", ["0", "65536", "many", "-1"])
def test_a_port_that_is_none_is_told_in_one_line(port, capsys):
    with pytest.raises(SystemExit):
        course.main(["lab", "--port=" + port])
    assert "is no number from 1 to 65535" in capsys.readouterr().err


def test_a_newer_version_is_laid_beside_once_and_told(rooms):
    course.copy_notebooks(rooms)
    source = rooms / "exercises" / "02_walk.ipynb"
    source.write_text("exercises 2", encoding="utf-8")
    (told,) = course.copy_notebooks(rooms)
    assert "newer exercises/02_walk.ipynb" in told and "02_walk.v2.ipynb" in told
    assert _texts(rooms / "work") == {
        **FIRST,
        "exercises/02_walk.v2.ipynb": "exercises 2",
    }
    assert course.copy_notebooks(rooms) == []
    (rooms / "work" / "exercises" / "02_walk.v2.ipynb").unlink()
    assert course.copy_notebooks(rooms) == []  # offered once, thrown away, gone
    source.write_text("exercises 3", encoding="utf-8")
    course.copy_notebooks(rooms)
    source.write_text("exercises 4", encoding="utf-8")
    course.copy_notebooks(rooms)
    texts = _texts(rooms / "work")
    assert texts["exercises/02_walk.v2.ipynb"] == "exercises 3"
    assert texts["exercises/02_walk.v3.ipynb"] == "exercises 4"
    assert texts["exercises/02_walk.ipynb"] == "exercises 1"


def test_a_deleted_copy_comes_back_as_the_course_now_has_it(rooms):
    course.copy_notebooks(rooms)
    (rooms / "work" / "exercises" / "02_walk.ipynb").unlink()
    assert course.copy_notebooks(rooms) == []
    assert _texts(rooms / "work") == FIRST
    (rooms / "work" / "exercises" / "02_walk.ipynb").unlink()
    (rooms / "exercises" / "02_walk.ipynb").write_text("2", encoding="utf-8")
    assert course.copy_notebooks(rooms) == []
    assert _texts(rooms / "work") == {**FIRST, "exercises/02_walk.ipynb": "2"}


def test_a_copy_that_cannot_be_finished_leaves_no_half_of_it(rooms, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(course.os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        course.copy_notebooks(rooms)
    assert [p for p in (rooms / "work").rglob("*") if p.is_file()] == []


def test_the_lab_opens_at_the_lowest_chapter(rooms):
    assert course.start_page(rooms / "work") == "/lab"
    for name in ("10_last", "00_start"):
        (rooms / "chapters" / f"{name}.ipynb").write_text("x", encoding="utf-8")
    course.copy_notebooks(rooms)
    (rooms / "work" / "chapters" / "00_a.v2.ipynb").write_text("x", encoding="utf-8")
    page = course.start_page(rooms / "work")
    assert page == "/lab/tree/chapters/00_start.ipynb"


# What test runs


def test_all_notebooks_run_in_the_same_pytest_call_as_the_tests(rooms):
    steps = dict(course.steps_of_test(course.Environment(rooms), quick=False))
    assert list(steps)[-2:] == ["build --check", "pytest"]
    assert steps["pytest"][1] == "tests"
    assert "--nbval-lax" in steps["pytest"]
    assert steps["pytest"][-2:] == ["chapters/02_walk.ipynb", "solutions/02_walk.ipynb"]


def test_quick_leaves_notebooks_and_slow_tests_out(rooms):
    steps = dict(course.steps_of_test(course.Environment(rooms), quick=True))
    assert steps["pytest"][:4] == ["pytest", "tests", "-m", "not slow"]
    assert steps["pytest"][4] == "-n" and 1 <= int(steps["pytest"][5]) <= 4
    assert steps["mypy"] == ["mypy", "--strict", "course_lib"]


def test_the_first_failure_ends_the_tests_with_its_exit_code(
    rooms, monkeypatch, capsys
):
    ran: list[str] = []

    def run(command, **_):
        ran.append(command[2])
        return subprocess.CompletedProcess(command, 3 if command[2] == "mypy" else 0)

    monkeypatch.setattr(course.Environment, "ensure", lambda self, extra: None)
    monkeypatch.setattr(course.subprocess, "run", run)
    monkeypatch.setattr(course, "ROOT", rooms)
    assert course.main(["test", "--quick"]) == 3
    assert ran == ["ruff", "ruff", "mypy"]
    assert "Stopped: mypy failed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "module"),
    [
        (["build"], ["tools.build"]),
        (["build", "--check"], ["tools.build", "--check"]),
        (["build", "--check", "--outputs"], ["tools.build", "--check", "--outputs"]),
        (["build", "--force"], ["tools.build", "--force"]),
        (["slides"], ["tools.slides"]),
        (["slides", "02", "03"], ["tools.slides", "02", "03"]),
        (["bench", "kernels"], ["benchmarks.kernels"]),
        (["bench", "device"], ["benchmarks.device"]),
        (["bench", "ppo"], ["benchmarks.ppo"]),
        (["bench", "ppo", "--quick"], ["benchmarks.ppo", "--quick"]),
        (["bench", "rlhf", "--quick"], ["benchmarks.rlhf", "--quick"]),
        (["bench", "device", "--cpu"], ["benchmarks.device", "--cpu"]),
        (["train", "--help"], ["course_lib.train", "--help"]),
        (
            ["train", "sft", "--config", "a.yaml", "--run.seed", "3"],
            ["course_lib.train", "sft", "--config", "a.yaml", "--run.seed", "3"],
        ),
    ],
)
def test_build_slides_bench_and_train_hand_their_arguments_on(
    arguments, module, monkeypatch
):
    seen: list[list[str]] = []

    def run(command, **_):
        seen.append(command[2:])
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(course.Environment, "ensure", lambda self, extra: None)
    monkeypatch.setattr(course.subprocess, "run", run)
    assert course.main(arguments) == 0
    assert seen == [module]


@pytest.mark.parametrize(
    ("what", "gpu", "extra"),
    [
        ("kernels", False, "bench"),
        ("ppo", False, "bench"),
        ("rlhf", False, "lab"),
        ("device", True, "gpu"),
        ("device", False, "lab"),
    ],
)
def test_bench_installs_only_what_it_can_use(what, gpu, extra, monkeypatch):
    asked = []
    monkeypatch.setattr(course, "has_nvidia_gpu", lambda: gpu)
    monkeypatch.setattr(
        course.Environment, "ensure", lambda self, extra: asked.append(extra)
    )
    monkeypatch.setattr(
        course.subprocess,
        "run",
        lambda command, **_: subprocess.CompletedProcess(command, 0),
    )
    assert course.main(["bench", what]) == 0
    assert asked == [extra]
    if what == "device":  # on the CPU a GPU's compiler is of no use
        assert course.main(["bench", what, "--cpu"]) == 0
        assert asked == [extra, "lab"]


def test_bench_kernels_has_no_cpu_to_choose(monkeypatch, capsys):
    monkeypatch.setattr(course.Environment, "ensure", lambda self, extra: None)
    assert course.main(["bench", "kernels", "--cpu"]) == 1
    assert "goes with `bench device`" in capsys.readouterr().err


def test_only_whole_trainings_have_a_short_benchmark(monkeypatch, capsys):
    monkeypatch.setattr(course.Environment, "ensure", lambda self, extra: None)
    assert course.main(["bench", "kernels", "--quick"]) == 1
    assert "goes with `bench ppo`" in capsys.readouterr().err


# The files beside it


def test_the_constraints_pin_every_direct_requirement_within_its_bounds():
    pins = course.read_pins(ROOT / "constraints.txt")
    assert pins["torch"] == "2.13.0"
    assert not [name for name in pins if name.startswith(("nvidia", "triton"))]
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    lines = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        lines += extra
    for line in lines:
        asked = Requirement(line)
        name = asked.name.lower()
        if name not in (project["name"], "triton"):  # triton follows from torch
            assert asked.specifier.contains(pins[name]), line
            Version(pins[name])


def test_conda_installs_exactly_the_course_with_lab_and_dev():
    text = (ROOT / "environment.yml").read_text(encoding="utf-8")
    conda = yaml.safe_load(text)
    assert conda["name"] == "ppo-course" and conda["channels"] == ["conda-forge"]
    (section,) = (part for part in conda["dependencies"] if isinstance(part, dict))
    assert section == {"pip": ["-e .[lab,dev]"]}
