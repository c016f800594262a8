"""Random workloads and configurations, small enough for the naive server: a few tokens where a log has thousands."""

from dataclasses import replace
from functools import partial

from hypothesis import strategies as st

from replay.config import Generation, ServerConfig
from replay.flat import FlatCosts
from replay.profiles import PROFILES
from replay.rope import Piece, cut, join, length
from replay.sizes import LinearSizes
from replay.workload import Asked, Fault, Image, Segment, Stop, Workload

#: dyadic, so that sums are exact however they are grouped
COSTS = FlatCosts(
    prefill_tps=64.0, decode_tps=16.0, batch_penalty=0.25, save_bps=2.0**14, load_bps=2.0**15, stage_bps=2.0**16,
    text_s=2.0**-12, request_s=2.0**-10,
)  # fmt: skip

FAULTS = (Fault("prefill", 7), Fault("decode", 3))


class Clients:
    """Draws what a few clients ask, turn after turn, as real ones do: go on, edit, try again, cut, start anew."""

    def __init__(self, draw, api, tools, thinking, images):
        self.draw, self.segments, self.requests = draw, {}, []
        self.api, self.tools, self.thinking, self.images = api, tools, thinking, images
        self.calm = draw(st.booleans())  # one lane, nobody leaves, nothing breaks
        self.lanes, self.many = (0, 1) if self.calm else (2, 3)
        hidden = "hidden" if thinking or tools or "responses" in api else "on"
        self.ways = (hidden, hidden, hidden, hidden, "on", "twin", "edit", "again", "cut", "new")
        self.heads = [self.piece("h", 3, 30) for _ in range(draw(st.integers(1, 2)))]
        self.talks = {}
        self.last = {}

    def piece(self, name, least, most, *, text=None, size=None):
        name = f"{name}{len(self.segments)}"
        tokens = self.draw(st.integers(least, most))
        size = self.draw(st.sampled_from((tokens, 3 * tokens + 1))) if size is None else size
        tool_map = self.draw(st.sampled_from((0, 0, 40))) if self.tools else 0
        self.segments[name] = Segment(name, min(tokens, size), bytes=size, text=text, tool_map=tool_map)
        return Piece(name, 0, min(tokens, size))

    def twin(self, piece):
        """The same bytes in other tokens."""
        segment = self.segments[piece.segment]
        text = segment.text or f"t-{segment.id}"
        self.segments[segment.id] = replace(segment, text=text)
        return self.piece("w", 1, segment.bytes, text=text, size=segment.bytes)

    def turn(self):
        draw = self.draw
        lane = draw(st.integers(0, self.lanes))
        talk = draw(st.integers(0, self.many))
        past = self.talks.get(talk)
        how = draw(st.sampled_from(self.ways))
        if past is None or how == "new":
            prompt, images, results = (
                join([draw(st.sampled_from(self.heads))], [self.piece("u", 1, 40)]),
                (),
                (),
            )
        elif how == "again":
            prompt, images, results = past.prompt, past.images, past.results
        else:
            prompt, images, results = self.follow(past, how)
        self.ask(lane, talk, prompt, images, results)

    def follow(self, past, how):
        whole = join(past.prompt, past.reply)
        images = past.images
        if how == "twin" and past.reply:
            base = join(past.prompt, [self.twin_of(past.reply[0])])
        elif how == "hidden" and past.shown is not None:
            base = join(cut(past.prompt, length(past.prompt) - past.drop), past.shown)
        elif how in ("edit", "cut"):
            keep = self.draw(st.integers(1, length(whole)))
            base = cut(whole, keep)
            images = tuple(i for i in images if i.at + i.tokens <= keep)
        else:
            base = whole
        results = past.calls[: self.draw(st.integers(1, 2))] if how != "again" else ()
        return join(base, [self.piece("u", 1, 25)]), images, results

    def twin_of(self, piece):
        for asked in self.requests:
            for other in asked.prompt:
                segment = self.segments[other.segment]
                same = segment.text is not None and segment.text == self.segments[piece.segment].text
                if (
                    same
                    and other.segment != piece.segment
                    and other.start == 0
                    and other.end == segment.tokens
                ):
                    return other
        return self.twin(piece)

    def shown(self, reply):
        """What a later prompt would hold in place of the reply: something else, the same and more, or unknown."""
        how = self.draw(st.sampled_from(("other", "other", "other", "more", "unknown")))
        if how == "unknown":
            return None
        return join(reply if how == "more" else (), [self.piece("s", 1, 12)])

    def ask(self, lane, talk, prompt, images, results):
        draw = self.draw
        number = len(self.requests) + 1
        again = next((a for a in self.requests if a.prompt == prompt), None)
        reply = again.reply if again else (self.piece("r", 1, 30),)
        if self.images and not again and draw(st.integers(0, 2)) == 0:
            images = (*images, Image(length(prompt) - 1, 1, draw(st.sampled_from("ab"))))
        ends_in_image = bool(images) and images[-1].at == length(prompt) - 1
        thinking = self.thinking and draw(st.integers(0, 3)) > 0
        calls = (
            (f"c{number}", f"d{number}")[: draw(st.integers(1, 2))]
            if self.tools and draw(st.booleans())
            else ()
        )
        finish = "tool_calls" if calls else draw(st.sampled_from(("stop", "stop", "stop", "length")))
        tokens, after = length(reply), self.last.get(lane)
        whole, start = length(prompt), draw(st.integers(0, 5))
        self.talks[talk] = asked = Asked(
            number, prompt, reply=reply, generated=tokens, conversation=f"c{talk}",
            api=draw(st.sampled_from(self.api)), tools=self.tools, thinking=thinking,
            stream=draw(st.booleans()), anchor=draw(st.sampled_from((None, min(9, whole), prompt[0].end))),
            shown=self.shown(reply),
            drop=0 if ends_in_image else draw(st.integers(0, 1)), images=images, after=after,
            think_s=draw(st.integers(0, 64)) / 16, arrival_s=None if after else draw(st.integers(0, 32)) / 16,
            gives_up_s=None if self.calm else draw(st.sampled_from((None, None, None, 0.5, 2.0))), finish=finish,
            stop_sequence=draw(st.integers(0, 19)) == 0, calls=calls, results=results,
            needs_live=bool(results) and draw(st.booleans()), tool_tail=min(3, whole),
            raw_tools=draw(st.booleans()), tool_block=(min(start, tokens), tokens) if calls else (),
            fault=None if self.calm else draw(st.sampled_from((None,) * 12 + FAULTS)),
        )  # fmt: skip
        if draw(st.integers(0, 9)):
            self.last[lane] = number
        self.requests.append(asked)


@st.composite
def workloads(draw, most=14):
    clients = Clients(
        draw,
        api=draw(
            st.sampled_from(
                (("chat",), ("chat",), ("responses",), ("anthropic",), ("chat", "responses", "completion"))
            )
        ),
        tools=draw(st.integers(0, 2)) == 0,
        thinking=draw(st.booleans()),
        images=draw(st.integers(0, 2)) == 0,
    )
    for _ in range(draw(st.integers(2, most))):
        clients.turn()
    stops = []
    if draw(st.integers(0, 5)) == 0:
        after = draw(st.integers(1, len(clients.requests) - 1))
        stops.append(
            Stop(
                before=after + 1,
                after=after,
                delay_s=draw(st.sampled_from((0.5, 3.0))),
                clean=draw(st.booleans()),
            )
        )
    elif draw(st.integers(0, 2)) == 0:
        stops.append(
            Stop(before=draw(st.integers(2, len(clients.requests))), clean=draw(st.booleans()), down_s=0.5)
        )
    if draw(st.booleans()):
        stops.append(Stop())
    origin = draw(st.sampled_from((0.0, 0.5)))
    return Workload(clients.segments, tuple(clients.requests), stops=tuple(stops), origin_s=origin)


@st.composite
def configs(draw):
    base = PROFILES[draw(st.sampled_from(sorted(PROFILES)))]
    generation = base.generation
    if draw(st.integers(0, 3)) == 0:
        generation = Generation(
            **{name: draw(st.booleans()) for name in ("consumes", "exact_retry", "images", "polls")}
        )
    pick = partial(lambda *values: draw(st.sampled_from(values)))
    return ServerConfig(
        slots=pick(None, 1, 2, 3), ctx=pick(90, 400), family=pick("deepseek-v4", "glm", "qwen-next"),
        kv_disk=pick(True, True, True, False), kv_disk_space_mb=pick(1, 2, 8), kv_cache_min_tokens=pick(6, 20),
        kv_cache_cold_max_tokens=pick(0, 40, 90), kv_cache_continued_interval_tokens=pick(0, 7, 24),
        kv_cache_boundary_trim_tokens=2, kv_cache_boundary_align_tokens=pick(4, 12), prefill_chunk=pick(8, 16),
        mixed_prefill_quantum=pick(3, 4), prefill_quantum=pick(6, 8), ring_rows=140,
        sizes=LinearSizes(pick(2e4, 3e5), pick(9e2, 9e3)), generation=generation,
        scheduler=pick("common-prefix", "visible-key", "reuse-aware", "empty-first", "min-prefix", "lru"),
        reuse=pick("ladder", "ladder", "rewind-to-common", "rewind-in-ring", "rewind-points"),
        store=pick("profile", "profile", "images-on-disk", "load-before-store", "protect-incoming"),
        exact_tool_replay=pick(True, False),
    )  # fmt: skip
