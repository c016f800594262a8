"""Random days of a few people who chat: several lanes, conversations with shared heads, edits, second tries, helpers.

Larger than `worlds`: prompts of thousands of tokens, so that checkpoints are made and found.
"""

from hypothesis import strategies as st

from replay.costs import Figure, FittedCosts
from replay.rope import Piece, cut, join, length
from replay.workload import Asked, Segment, Stop, Workload

#: a machine of 430 tokens a second, as those of the captures
MACHINE = FittedCosts(
    token_s=Figure(1 / 430), step_s=Figure(1 / 25), batch_share=Figure(0.2), store_byte_s=Figure(1 / 3e9 + 1 / 5e9),
    stage_byte_s=Figure(1 / 5e9), load_byte_s=Figure(1 / 3e9), load_fixed_s=Figure(0.002),
    admit_token_s=Figure(3e-7), besides_s=Figure(0.003),
)  # fmt: skip
SERVERS = ("ds4-2026-08", "ds4-2026-09-vision", "ds4-2026-09-reuse")


class Talk:
    """One conversation: its last prompt and reply, and those before."""

    def __init__(self, head, anchor):
        self.head, self.anchor, self.past = head, anchor, []

    @property
    def whole(self):
        prompt, reply = self.past[-1]
        return join(prompt, reply)


class Day:
    def __init__(self, random, lanes, turns, edits=0.0, helpers=0.0):
        self.random, self.edits, self.helpers = random, edits, helpers
        self.segments, self.requests, self.last = {}, [], {}
        tag = self.piece("bos", 4)
        self.heads = [join(tag, self.piece(f"h{n}", random.choice((600, 2100, 4100)) - 4)) for n in range(2)]
        self.task = join(tag, self.piece("task", 700))
        self.talks = [
            [Talk(h := random.choice(self.heads), length(h)) for _ in range(count)] for count in lanes
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
        reply = self.words("r", 40, 400)
        prompt = self.next_prompt(talk)
        talk.past.append((prompt, reply))
        self.ask(lane, f"{lane}.{self.talks[lane].index(talk)}", prompt, reply, talk.anchor)

    def next_prompt(self, talk):
        if not talk.past:
            return join(talk.head, self.words("tag", 1, 1), self.words("u", 300, 6000))
        if self.random.random() >= self.edits:
            return join(talk.whole, self.piece(f"e{len(self.requests)}", 2), self.words("u", 100, 900))
        prompt, reply = talk.past[-1]
        how = self.random.choice(("again", "cut", "replaced"))
        if how == "again":
            return prompt
        if how == "cut":
            kept = join(prompt, cut(reply, self.random.randint(0, length(reply) - 1)))
        else:
            kept = join(*talk.past[-2]) if len(talk.past) > 1 else cut(prompt, talk.anchor)
        return join(kept, self.words("u", 100, 900))

    def ask(self, lane, name, prompt, reply, anchor):
        number, after = len(self.requests) + 1, self.last.get(lane)
        pause = self.random.uniform(3, 20)
        self.requests.append(
            Asked(
                number, prompt, reply, length(reply), name, anchor=anchor, after=after,
                think_s=pause if after else 0.0, arrival_s=None if after else pause,
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
