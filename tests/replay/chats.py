"""Random days of a few people who chat: several lanes, conversations with shared heads, edits, second tries, helpers.

Larger than `worlds`: prompts of thousands of tokens, so that checkpoints are made and found.
"""

from dataclasses import replace

from hypothesis import strategies as st

from replay.costs import Figure, FittedCosts
from replay.rope import Piece, cut, join, length
from replay.workload import Asked, Segment, Stop, Workload


def machine(pace=1):
    """430 tokens a second, `pace` times as fast as that; the server's own work on text is not (as in the captures)."""
    return FittedCosts(
        token_s=Figure(1 / 430 / pace), step_s=Figure(1 / 25 / pace), batch_share=Figure(0.2),
        store_byte_s=Figure((1 / 3e9 + 1 / 5e9) / pace), stage_byte_s=Figure(1 / 5e9 / pace),
        load_byte_s=Figure(1 / 3e9 / pace), load_fixed_s=Figure(0.002), admit_token_s=Figure(3e-7), besides_s=Figure(0.003),
    )  # fmt: skip


def hurried(workload, pace):
    """The same day, `pace` times as fast."""
    return replace(
        workload,
        requests=tuple(
            replace(a, think_s=a.think_s / pace, arrival_s=None if a.after else a.arrival_s / pace)
            for a in workload.requests
        ),
    )


MACHINE = machine()
SERVERS = ("ds4-2026-08", "ds4-2026-09-vision", "ds4-2026-09-reuse")


class Talk:
    """One conversation: its last prompt and reply, and those before. One that `thinks` sends no reasoning back; one with
    `tools` makes calls within a turn."""

    def __init__(self, head, anchor, thinks=False, tools=False):
        self.head, self.anchor, self.past, self.thinks, self.tools = head, anchor, [], thinks, tools

    @property
    def whole(self):
        prompt, reply, shown = self.past[-1]
        return join(prompt, reply) if shown is None else join(cut(prompt, length(prompt) - 1), shown)


class Day:
    def __init__(self, random, lanes, turns, edits=0.0, helpers=0.0, thinking=0.0, tools=0.0):
        self.random, self.edits, self.helpers = random, edits, helpers
        self.segments, self.requests, self.last = {}, [], {}
        tag = self.piece("bos", 4)
        self.heads = [join(tag, self.piece(f"h{n}", random.choice((600, 2100, 4100)) - 4)) for n in range(2)]
        self.task = join(tag, self.piece("task", 700))
        self.talks = [
            [
                Talk(
                    h := random.choice(self.heads),
                    length(h),
                    n < thinking * count,
                    n >= count - tools * count,
                )
                for n in range(count)
            ]
            for count in lanes
        ]
        for _ in range(turns):
            for lane in range(len(lanes)):
                self.turn(lane)

    def piece(self, name, tokens):
        self.segments[name] = Segment(name, max(1, tokens), int(max(1, tokens) * 5.5))
        return (Piece(name, 0, max(1, tokens)),)

    def words(self, kind, least, most):
        return self.piece(f"{kind}{len(self.requests) + 1}", self.random.randint(least, most))

    def turn(self, lane):
        if self.random.random() < self.helpers:
            prompt = join(self.task, self.words("u", 100, 400))
            self.ask(lane, f"help{len(self.requests)}", prompt, self.words("r", 5, 40), length(self.task))
        talk = self.random.choice(self.talks[lane])
        steps = self.random.randint(1, 4) if talk.tools else 1
        for step in range(1, steps + 1):
            self.answer(lane, talk, calls=step < steps, soon=step > 1)

    def answer(self, lane, talk, *, calls, soon):
        number, more = len(self.requests) + 1, {}
        reply, shown = self.words("r", 40, 400), None
        prompt = join(talk.whole, self.words("t", 60, 400)) if soon else self.next_prompt(talk)
        if talk.thinks:
            prompt = join(prompt, self.piece(f"think{number}", 1))
        if talk.thinks:
            content, reason = reply, self.words("w", 40, 300)
            closed, over = self.piece(f"c{number}", 1), self.piece(f"o{number}", 1)
            reply, shown = join(reason, closed, content), join(closed, content, over)
            more = {"thinking": True, "shown": shown, "drop": 1}
        if talk.tools:
            results = self.requests[-1].calls if soon else ()
            more |= {"tools": True, "results": results, "tool_tail": length(prompt[-1:]) if results else 0}
        if calls:
            block = (length(reply) // 4, length(reply))
            more |= {"calls": (f"call{number}",), "finish": "tool_calls", "tool_block": block}
        talk.past.append((prompt, reply, shown))
        pause = self.random.uniform(0.2, 1.5) if soon else None
        name = f"{lane}.{self.talks[lane].index(talk)}"
        self.ask(lane, name, prompt, reply, talk.anchor, pause, **more)

    def next_prompt(self, talk):
        if not talk.past:
            return join(talk.head, self.words("tag", 1, 1), self.words("u", 300, 6000))
        if talk.thinks or talk.tools or self.random.random() >= self.edits:
            return join(talk.whole, self.piece(f"e{len(self.requests)}", 2), self.words("u", 100, 900))
        prompt, reply, _ = talk.past[-1]
        how = self.random.choice(("again", "cut", "replaced"))
        if how == "again":
            return prompt
        if how == "cut":
            kept = join(prompt, cut(reply, self.random.randint(0, length(reply) - 1)))
        else:
            kept = join(*talk.past[-2][:2]) if len(talk.past) > 1 else cut(prompt, talk.anchor)
        return join(kept, self.words("u", 100, 900))

    def ask(self, lane, name, prompt, reply, anchor, pause=None, **more):
        number, after = len(self.requests) + 1, self.last.get(lane)
        pause = self.random.uniform(3, 20) if pause is None else pause
        self.requests.append(
            Asked(
                number, prompt, reply, length(reply), name, anchor=anchor, after=after,
                think_s=pause if after else 0.0, arrival_s=None if after else pause, **more,
            )
        )  # fmt: skip
        self.last[lane] = number

    def workload(self):
        return Workload(
            self.segments,
            tuple(self.requests),
            (Stop(),),
            family="deepseek-v4",
            ctx=200000,
            bytes_per_token=5.5,
        )


@st.composite
def days(draw, lanes=1, turns=8):
    """A workload of `lanes` people at most."""
    random = draw(st.randoms(use_true_random=True))
    people = [random.randint(1, 3) for _ in range(random.randint(1, lanes))]
    edits, helpers = random.choice((0.0, 0.3)), random.choice((0.0, 0.2))
    return Day(random, people, random.randint(3, turns), edits, helpers).workload()


@st.composite
def options(draw):
    """Options of a server, as `replay.study.Study.run` takes them."""
    return {
        "server": draw(st.sampled_from(SERVERS)),
        "slots": draw(st.sampled_from(("single", 2, 3))),
        "kv_disk": draw(st.booleans()),
        "kv_disk_space_mb": draw(st.sampled_from((300, 600, 8192))),
        "kv_cache_cold_max_tokens": draw(st.sampled_from((3000, 30000))),
    }
