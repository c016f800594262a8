"""The two matrix workloads as their clients sent them, from the clients' side of one capture.

Which prompt extends which is in `client.jsonl` (roles), `workloads/*.json` (what the client did to its history)
and `truth.jsonl` (prompt lengths, reply lengths, and where a changed history parts from the one before).
"""

import json
from dataclasses import replace
from pathlib import Path

from replay.flat import FlatCosts
from replay.profiles import profile
from replay.rope import Piece, cut, join, length
from replay.workload import Asked, Segment, Stop, Workload

MATRIX = Path(__file__).parents[2] / "fixtures/captures/matrix"
FACTOR = {"W1": 50, "W4": 100}
CTX = {"W1": 160000, "W4": 65536}


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def workload(name, configuration):
    folder = MATRIX / name / configuration
    steps = json.loads((MATRIX / f"workloads/{name}.json").read_text())["lanes"][0]
    client = [row for row in rows(folder / "client.jsonl") if "seq" in row]
    truth = rows(folder / "truth.jsonl")
    head = next(row["common"] for row in truth if row["id"] == "B.1")
    build = Builder(head, FACTOR[name])
    for asked, sent, step in zip(truth, client, steps, strict=True):
        build.turn(asked, sent, step)
    return Workload(
        build.segments, tuple(build.requests), stops=(Stop(),), ctx=CTX[name], bytes_per_token=5.4
    )


class Builder:
    def __init__(self, head, factor):
        self.head, self.factor = head, factor
        self.segments = {"head": Segment("head", head)}
        self.live, self.last, self.requests, self.before = {}, {}, [], None

    def piece(self, name, tokens):
        self.segments[name] = Segment(name, tokens)
        return Piece(name, 0, tokens)

    def kept(self, asked, step):
        """What the prompt keeps of its conversation, or None for the same prompt again."""
        talk = asked["conv"]
        if talk not in self.live:
            return (Piece("head", 0, self.head),)
        if step["kind"] == "regen":
            return None
        if self.before == talk:
            return cut(self.live[talk], asked["common"])
        if step["edit"] == "word":  # 73 tokens of the reply come before it (W4/R-2-disk, A.6: common)
            return cut(self.live[talk], length(self.last[talk].prompt) + 73)
        return (
            cut(self.live[talk], length(self.live[talk]) - 17) if step["edit"] == "short" else self.live[talk]
        )

    def turn(self, asked, sent, step):
        kept, talk, name = self.kept(asked, step), asked["conv"], asked["id"]
        if kept is None:
            prompt, reply = self.last[talk].prompt, self.last[talk].reply
        else:
            prompt = join(kept, [self.piece(f"{name}.u", asked["prompt_canonical"] - length(kept))])
            reply = (self.piece(f"{name}.r", asked["generated"]),)
        number = len(self.requests) + 1
        row = Asked(
            number, prompt, reply=reply, generated=asked["generated"], conversation=talk, stream=False,
            anchor=self.head - 1, after=number - 1 or None, arrival_s=None if number > 1 else 0.0,
            think_s=sent["think_s"] / self.factor,
        )  # fmt: skip
        self.live[talk], self.last[talk], self.before = join(prompt, reply), row, talk
        self.requests.append(row)


def machine(name):
    """The simulated machine of the README, accelerated; the server's own work on text is not."""
    f = FACTOR[name]
    return FlatCosts(
        prefill_tps=430 * f, decode_tps=25 * f, save_bps=3e9 * f, load_bps=3e9 * f, stage_bps=5e9 * f,
        text_s=3.3e-7, request_s=5e-4,
    )  # fmt: skip


def configuration(name, folder):
    """The server that `predict.json` describes."""
    words = iter(json.loads((MATRIX / name / folder / "predict.json").read_text())["args"])
    options = {"ctx": CTX[name]}
    base = None
    for word in words:
        if word == "--no-kv-disk":
            options["kv_disk"] = False
            continue
        value = next(words)
        if word == "--server":
            base = profile(value)
        elif word == "--slots":
            options["slots"] = None if value == "single" else int(value)
        else:
            options[word[2:].replace("-", "_")] = int(value) if value.isdigit() else value
    return replace(base, **options)


def captures():
    """(workload, configuration) of every capture of the matrix, repetitions aside."""
    found = sorted(MATRIX.glob("W*/*/summary.json"))
    return [(p.parts[-3], p.parts[-2]) for p in found if ".rep" not in p.parts[-2]]
