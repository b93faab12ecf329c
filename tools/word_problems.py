"""course_lib/data/word-problems-*.jsonl: the course's own word problems.

    python -m tools.word_problems

Each is made of a template, whose way to the answer is written out one operation to a
line; tests/test_problems.py computes every line again.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from tools.files import write_text

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "course_lib" / "data"
COUNTS = {"train": 200, "test": 40}
NAMES = ("Ada", "Ben", "Chi", "Dora", "Emil", "Fay", "Gus", "Hana", "Ivo", "Juno")
THINGS = ("apples", "books", "coins", "eggs", "nails", "pens", "seeds", "stamps")


def shared_boxes(draw: random.Random) -> tuple[str, list[str]]:
    name, thing = draw.choice(NAMES), draw.choice(THINGS)
    boxes, each, gone = draw.randint(2, 9), draw.randint(3, 12), draw.randint(1, 5)
    total = boxes * each
    return (
        f"{name} has {boxes} boxes with {each} {thing} each and gives {gone} {thing} "
        f"away. How many {thing} are left?",
        [f"{boxes} * {each} = {total}", f"{total} - {gone} = {total - gone}"],
    )


def two_days(draw: random.Random) -> tuple[str, list[str]]:
    name, thing = draw.choice(NAMES), draw.choice(THINGS)
    first, factor = draw.randint(4, 20), draw.randint(2, 4)
    second = first * factor
    return (
        f"{name} sold {first} {thing} on Monday and {factor} times as many on Tuesday. "
        f"How many {thing} did {name} sell on both days?",
        [f"{first} * {factor} = {second}", f"{first} + {second} = {first + second}"],
    )


def change(draw: random.Random) -> tuple[str, list[str]]:
    name, thing = draw.choice(NAMES), draw.choice(THINGS)
    count, price = draw.randint(2, 6), draw.randint(2, 7)
    paid, cost = 50, count * price
    return (
        f"{name} buys {count} {thing} at {price} dollars each and pays with a note of "
        f"{paid} dollars. How many dollars does {name} get back?",
        [f"{count} * {price} = {cost}", f"{paid} - {cost} = {paid - cost}"],
    )


def fair_shares(draw: random.Random) -> tuple[str, list[str]]:
    name, thing = draw.choice(NAMES), draw.choice(THINGS)
    friends, each, kept = draw.randint(2, 8), draw.randint(2, 9), draw.randint(1, 9)
    handed = friends * each
    total = handed + kept
    return (
        f"{name} had {total} {thing}, kept {kept} and shared the rest evenly among "
        f"{friends} friends. How many {thing} did each friend get?",
        [f"{total} - {kept} = {handed}", f"{handed} / {friends} = {each}"],
    )


def journey(draw: random.Random) -> tuple[str, list[str]]:
    name, speed = draw.choice(NAMES), draw.choice((4, 5, 10, 12, 15, 20, 30, 60))
    hours, more = draw.randint(2, 6), draw.randint(1, 30)
    far = speed * hours
    return (
        f"{name} travels {hours} hours at {speed} km an hour and then another {more} "
        f"km. How many km does {name} travel?",
        [f"{speed} * {hours} = {far}", f"{far} + {more} = {far + more}"],
    )


def half_then(draw: random.Random) -> tuple[str, list[str]]:
    name, thing = draw.choice(NAMES), draw.choice(THINGS)
    half, more = draw.randint(3, 25), draw.randint(2, 15)
    return (
        f"Half of {name}'s {2 * half} {thing} get lost. Then {name} finds {more} new "
        f"ones. How many {thing} does {name} have now?",
        [f"{2 * half} / 2 = {half}", f"{half} + {more} = {half + more}"],
    )


TEMPLATES = (shared_boxes, two_days, change, fair_shares, journey, half_then)


def problems(count: int, seed: int = 0) -> list[dict[str, str]]:
    """So many problems, no question twice, all templates in turn."""
    draw, found = random.Random(seed), dict[str, str]()
    while len(found) < count:
        question, steps = TEMPLATES[len(found) % len(TEMPLATES)](draw)
        result = steps[-1].rpartition("= ")[2]
        found[question] = "\n".join([*steps, f"#### {result}"])
    return [{"question": q, "answer": a} for q, a in found.items()]


def files() -> dict[Path, str]:
    """What is written, by place: a line of JSON for each problem."""
    every, made = problems(sum(COUNTS.values())), {}
    for part, count in COUNTS.items():
        some, every = every[:count], every[count:]
        lines = [json.dumps(one, ensure_ascii=False) + "\n" for one in some]
        made[FOLDER / f"word-problems-{part}.jsonl"] = "".join(lines)
    return made


if __name__ == "__main__":
    for place, text in files().items():
        write_text(place, text)
