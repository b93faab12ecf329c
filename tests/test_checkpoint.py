"""Checkpoints: whole or not at all, and nothing in them is ever executed."""

import hashlib
import io
import os
import pickle
import random
import zipfile

import pytest
import torch

from course_lib.train import files
from course_lib.train.checkpoint import (
    MAGIC,
    CheckpointError,
    load_checkpoint,
    save_checkpoint,
)

STATE = {
    "weights": torch.arange(6.0).view(2, 3),
    "random": torch.Generator().manual_seed(3).get_state(),
    "done": 4,
    "records": [{"loss": 0.1 + 0.2, "nan": float("nan")}],
    "name": "größe",
    "past": [],
}


def sealed(payload):
    """A file with the right beginning and checksum, whatever is inside."""
    return MAGIC + hashlib.sha256(payload).digest() + payload


def pickled(value):
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def test_what_is_saved_comes_back_bit_by_bit(tmp_path):
    path = tmp_path / "new" / "checkpoint.pt"
    save_checkpoint(path, STATE)
    state = load_checkpoint(path)
    assert torch.equal(state["weights"], STATE["weights"])
    assert torch.equal(state["random"], STATE["random"])
    assert state["records"][0]["loss"] == 0.1 + 0.2 and state["name"] == "größe"
    assert [one.name for one in path.parent.iterdir()] == ["checkpoint.pt"]


@pytest.mark.parametrize("stage", ["fsync", "replace"])
def test_a_process_that_dies_while_writing_leaves_the_old_one(
    tmp_path, monkeypatch, stage
):
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, STATE)

    def die(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, stage, die)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(path, STATE | {"done": 5})
    assert load_checkpoint(path)["done"] == 4
    monkeypatch.undo()
    save_checkpoint(path, STATE | {"done": 6})  # what is left beside is no obstacle
    assert load_checkpoint(path)["done"] == 6


def test_it_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    order = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(
            files.os,
            name,
            lambda *a, real=real, name=name: (order.append(name), real(*a))[1],
        )
    save_checkpoint(tmp_path / "checkpoint.pt", STATE)
    assert order[:2] == ["fsync", "replace"]


def test_a_truncated_file_is_refused_wherever_it_was_cut(tmp_path):
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, STATE)
    whole = path.read_bytes()
    for length in (0, 5, len(MAGIC), len(MAGIC) + 7, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=r"checkpoint\.pt: cut off"):
            load_checkpoint(path)


def test_a_flipped_bit_is_noticed(tmp_path):
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, STATE)
    whole = bytearray(path.read_bytes())
    for place in (len(MAGIC) + 3, len(whole) // 2, len(whole) - 9):
        changed = whole.copy()
        changed[place] ^= 4
        path.write_bytes(changed)
        with pytest.raises(CheckpointError, match="changed since it was written"):
            load_checkpoint(path)


@pytest.mark.parametrize("content", [b"PK\x03\x04 a zip", b"{}", pickled({"done": 1})])
def test_a_foreign_file_is_refused_in_words(tmp_path, content):
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"model\.pt: no checkpoint of this"):
        load_checkpoint(path)


class Trap:
    """Runs a command where it is unpickled."""

    def __reduce__(self):
        return (os.mkdir, (Trap.place,))


def test_nothing_that_a_checkpoint_contains_is_executed(tmp_path):
    """Not even where the checksum is right, which anybody can compute."""
    Trap.place = str(tmp_path / "sprung")
    path = tmp_path / "checkpoint.pt"
    for payload in (pickled({"state": Trap()}), pickle.dumps(Trap())):
        path.write_bytes(sealed(payload))
        with pytest.raises(CheckpointError, match="nothing of it was executed"):
            load_checkpoint(path)
        assert not (tmp_path / "sprung").exists()
    torch.load(io.BytesIO(pickled({"state": Trap()})), weights_only=False)
    assert (tmp_path / "sprung").exists()  # the trap works


def test_a_sealed_file_of_anything_is_refused_in_words(tmp_path):
    """IndexError, AssertionError, UnicodeDecodeError: torch has many words for it."""
    whole, path = pickled(STATE), tmp_path / "checkpoint.pt"
    inside = zipfile.ZipFile(io.BytesIO(whole))
    parts = {name: inside.read(name) for name in inside.namelist()}
    (name,) = [one for one in parts if one.endswith("data.pkl")]
    chance = random.Random(0)
    payloads = [b"", b"\x80", b"\x80\x02."]
    for _ in range(60):
        spoiled, archive = bytearray(parts[name]), io.BytesIO()
        for _ in range(4):
            spoiled[chance.randrange(len(spoiled))] = chance.randrange(256)
        with zipfile.ZipFile(archive, "w") as file:
            for one, content in parts.items():
                file.writestr(one, bytes(spoiled) if one == name else content)
        payloads.append(archive.getvalue())
    refused = 0
    for payload in payloads:
        path.write_bytes(sealed(payload))
        try:
            load_checkpoint(path)
        except CheckpointError:
            refused += 1
    assert refused > 30


def test_other_contents_are_refused_in_words(tmp_path):
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(sealed(pickled([1, 2])))
    with pytest.raises(CheckpointError, match="holds a list, not a run"):
        load_checkpoint(path)
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_checkpoint(tmp_path / "none.pt")
