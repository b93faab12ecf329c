"""Settings in layers, and what is said about one that there is not."""

import json
from dataclasses import dataclass

import pytest

from course_lib.algorithms import RLHFConfig
from course_lib.train.program import PROGRAMS
from course_lib.train.settings import Program, field_words, files_first, read_settings

pytest.importorskip("jsonargparse")


@dataclass(frozen=True)
class Numbers:
    """Some."""

    beta: float = 0.1
    """The price,
    on two lines and 100 %."""
    clip_eps: float | None = None
    """A width."""
    hidden: tuple[int, ...] = (64, 64)
    """Sizes."""


def nothing(settings, **configs):
    """Do nothing.

    At length.
    """


TWO = {
    "one": Program(nothing, {"algorithm": Numbers, "model": Numbers}),
    "other": Program(nothing, {"algorithm": Numbers}, {"algorithm.beta": 9.0}),
}


def read(*arguments):
    return read_settings(TWO, arguments)


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_later_file_rules_over_an_earlier_and_a_flag_over_both(tmp_path):
    """Wherever on the line the flag stands."""
    first = write(tmp_path / "1.yaml", "algorithm: {beta: 1, clip_eps: 1}\n")
    second = write(tmp_path / "2.yaml", "algorithm: {beta: 2, hidden: [8]}\n")
    flag = ("--algorithm.hidden", "[3]")
    for line in (
        ("one", *flag, "--config", first, "--config", second),
        ("one", "--config", first, f"--config={second}", *flag),
    ):
        name, values = read(*line)
        assert name == "one" and "config" not in values
        assert values["algorithm"] == {"beta": 2.0, "clip_eps": 1.0, "hidden": (3,)}
        assert values["model"] == {"beta": 0.1, "clip_eps": None, "hidden": (64, 64)}


def test_a_program_may_start_from_other_defaults_and_hide_some():
    assert read("other")[1]["algorithm"]["beta"] == 9.0
    hiding = Program(nothing, {"a": Numbers}, hidden=frozenset({"a.beta"}))
    assert [one[0] for one in hiding.settings()] == ["a.clip_eps", "a.hidden"]
    assert hiding.configs({"a": {"clip_eps": 1.0}})["a"] == Numbers(clip_eps=1.0)


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["one", "--algorithm.clip_epsilon", "1"], "algorithm.clip_eps"),
        (["one", "--model.hiden", "[1]"], "model.hidden"),
        (["one", "--beta", "1"], "algorithm.beta"),
        (["on"], "one"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_nearest_name(capsys, arguments, meant):
    with pytest.raises(SystemExit) as ended:
        read(*arguments)
    assert ended.value.code == 2
    assert f"did you mean {meant}?" in capsys.readouterr().err


def test_an_unknown_key_of_a_file_is_refused_as_well(capsys, tmp_path):
    path = write(tmp_path / "1.yaml", "algorithm:\n  clip_epss: 1\n")
    with pytest.raises(SystemExit):
        read("one", "--config", path)
    assert "did you mean algorithm.clip_eps?" in capsys.readouterr().err


def test_a_value_of_another_type_is_refused_by_name(capsys):
    with pytest.raises(SystemExit):
        read("one", "--algorithm.beta", "much")
    said = capsys.readouterr().err
    assert "algorithm.beta" in said and "much" in said and "did you mean" not in said


def test_print_config_prints_what_would_be_used(capsys, tmp_path):
    path = write(tmp_path / "1.yaml", "algorithm: {beta: 7}\n")
    with pytest.raises(SystemExit) as ended:
        read("one", "--config", path, "--model.beta", "8", "--print_config")
    assert not ended.value.code
    printed = capsys.readouterr().out
    again = write(tmp_path / "2.yaml", printed)
    values = read("one", "--config", again)[1]
    assert values["algorithm"]["beta"] == 7 and values["model"]["beta"] == 8


def test_help_says_what_each_setting_means(capsys):
    for name in PROGRAMS:
        with pytest.raises(SystemExit) as ended:
            read_settings(PROGRAMS, [name, "--help"])
        assert not ended.value.code
    # argparse reads a percent sign as its own.
    assert field_words(Numbers)["beta"] == "The price, on two lines and 100 %%."
    assert field_words(RLHFConfig).keys() == vars(RLHFConfig()).keys()


def test_every_setting_of_every_program_is_explained():
    for name, program in PROGRAMS.items():
        assert program.words, name
        for setting, _, _, words in program.settings():
            assert words, f"{name}: {setting}"


def test_files_come_first_and_nothing_else_is_moved():
    given = ["one", "--a", "1", "--config", "x", "--b=2", "--config=y"]
    expected = ["one", "--config", "x", "--config=y", "--a", "1", "--b=2"]
    assert files_first(given) == expected
    assert files_first(["--help"]) == ["--help"] and files_first([]) == []
    assert files_first(["one", "--config"]) == ["one", "--config"]


def test_a_program_of_one_group_may_name_its_fields_alone(tmp_path):
    flat = Program(nothing, {"numbers": Numbers}, {"beta": 2.0}, flat=True)
    path = write(tmp_path / "1.yaml", "hidden: [8]\n")
    arguments = ["flat", "--clip_eps", "3", "--config", path]
    _, values = read_settings({"flat": flat}, arguments)
    assert flat.configs(values) == {"numbers": Numbers(2.0, 3.0, (8,))}


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("ppo-lm kl_coef", "algorithm.beta"),
        ("grpo lr", "algorithm.learning_rate"),
        ("sft epochs", "algorithm.num_epochs"),
        ("ppo-lm cliprange", "algorithm.clip_eps"),
        ("ppo-env gae_lambda", "algorithm.lam"),
        ("ppo-env lambda", "algorithm.lam"),
        ("grpo max_new_tokens", "algorithm.length"),
        ("grpo num_generations", "algorithm.group_size"),
        ("ppo-env entropy_coef", "algorithm.ent_coef"),
    ],
)
def test_another_librarys_name_of_a_setting_leads_to_ours(capsys, asked, meant):
    program, name = asked.split()
    with pytest.raises(SystemExit):
        read_settings(PROGRAMS, [program, f"--algorithm.{name}", "1"])
    assert f"did you mean {meant}?" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "# nothing yet\n", "algorithm:\n"])
def test_a_file_may_set_nothing(tmp_path, content):
    path = write(tmp_path / "1.yaml", content)
    values = read("one", "--config", path, "--algorithm.beta", "3")[1]
    assert values["algorithm"]["beta"] == 3 and values["model"]["beta"] == 0.1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("algorithm: 3\n", "1.yaml: algorithm must hold settings by name, got 3"),
        ("[1, 2]\n", "1.yaml must hold settings by name, got [1, 2]"),
        ("beta\n", "1.yaml must hold settings by name, got 'beta'"),
        ("program: other\n", "1.yaml holds the settings of other, not of one"),
    ],
)
def test_a_file_without_settings_is_refused_by_name(tmp_path, capsys, content, words):
    path = write(tmp_path / "1.yaml", content)
    with pytest.raises(SystemExit) as ended:
        read("one", "--config", path)
    said = capsys.readouterr().err
    assert ended.value.code == 2 and words in said and said.startswith("error: ")


def test_the_settings_of_a_run_are_read_as_they_were_written(tmp_path):
    wide = ["--algorithm.beta", ".inf", "--algorithm.hidden", "[3, 4]"]
    name, values = read("one", *wide)
    text = json.dumps({"program": name, **values})
    path = write(tmp_path / "settings.json", text)
    assert "Infinity" in text and read("one", f"--config={path}") == (name, values)
    assert read("one", "--config", path, "--model.beta", "2")[1]["model"]["beta"] == 2


def test_one_value_is_a_list_of_one():
    for given in ("8", "[8]"):
        assert read("one", "--model.hidden", given)[1]["model"]["hidden"] == (8,)
    for given in ("a=b+c", "[a=b+c]"):
        values = read_settings(PROGRAMS, ["plot", "--runs", given])[1]
        assert values["runs"] == ("a=b+c",)
