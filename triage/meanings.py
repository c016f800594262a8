"""What a line of the log means, for `ds4scope explain`: one sentence a kind, one a field."""

from __future__ import annotations

from typing import Final

#: event kind -> what the server says with it
KINDS: Final = {
    "live_miss": "A request could not use what its slot holds: prompt and live state part after `common` tokens. "
    "`reason=` is nearly always token-mismatch and is no cause; common = prompt is a retry of the same prompt.",
    "live_rewind": "The server cut the live state back to an earlier point (GLM, rewind points of forks), or could not.",
    "live_continuation": "The client's turn was bound to the live state by ids or visible text, so its sampled tokens stay.",
    "multimodal_hit": "A request with images continues the live state; the images are the same bytes.",
    "kv_stored": "A checkpoint was written to disk. cold: head of a new prompt; continued: at a multiple of the interval; "
    "evict: the old state before a slot is overwritten; shutdown: at the end.",
    "kv_hit": "A checkpoint was read from disk and the prefill goes on behind its `tokens`.",
    "kv_evicted": "A checkpoint file was deleted to keep the budget. hits=0 means that nobody ever read it.",
    "kv_skipped": "A checkpoint was not written; the cause stands behind `because`.",
    "kv_failed": "Writing or reading a checkpoint failed. A file that cannot be read stays and fails again.",
    "kv_discarded": "A checkpoint file was deleted since it was corrupt or its prefill failed or was cancelled.",
    "prompt_start": "The prefill begins: ctx=C..P:S reuses C tokens of a prompt of P and computes S.",
    "prefill_chunk": "Progress of a prefill: tokens done of the part that is computed, speed of the last chunk and on average.",
    "prompt_done": "The prefill is over; the seconds count from `prompt start`, not from the request's arrival.",
    "decoding": "Progress of the answer: `gen` tokens so far and their speed.",
    "finish": "The answer is over; its seconds count from `prompt start`.",
    "tool_calls": "The answer holds tool calls; raw_tool_text=1 means that their exact bytes are kept for replay.",
    "tool_repair": "The model's tool call or thinking was malformed; the server repaired, ignored or returned it.",
    "checkpoint": "The live state was bound to what the client will send back, or rewritten to its canonical form.",
    "stream_error": "The client's connection was gone, or the prefill failed. The work went on for nobody.",
    "slot_evicting": "The reuse-aware scheduler gives a job to a slot whose state it cannot use; all slots were taken.",
    "decode_batch": "One decode step over `n` sequences at once.",
    "vision_cache": "An image of a request was encoded, or its encoding was still there.",
    "startup": "A line of the server's or the engine's start; here stand the options.",
    "shutdown": "The server ends; live states are written to disk first.",
    "unknown": "The server's head, but a text that no rule knows: a fork's line, or a newer build's.",
    "foreign": "Not a line of ds4-server: another program, or prose.",
}

#: field -> meaning and unit
FIELDS: Final = {
    "live": "tokens that the slot held before the request",
    "prompt": "tokens of the canonical prompt",
    "common": "tokens that prompt and live state share from the start; a perfect rewind would keep these",
    "tokens": "tokens of the checkpoint",
    "trimmed": "tokens of the prompt behind the checkpoint",
    "span_start": "C: tokens reused",
    "span_end": "P: tokens of the effective prompt",
    "span_tokens": "S: tokens to compute",
    "gen": "tokens sampled, without the stop token",
    "size_mib": "size of the whole file, MiB",
    "save_ms": "time of writing; the copy before it and evictions do not count",
    "load_ms": "time of reading, without the search for the file",
    "hits": "how often the file was read",
    "elapsed_s": "seconds since the prefill began (decoding lines: since decoding began)",
    "text": "bytes of the text that names the file",
    "key": "what names the file: sampled tokens as text, or the transcript as the client shows it",
    "consumed": "the file was deleted by reading it (builds before August 2026)",
    "vision": "whether the images of live state and prompt agree; printed for text as well",
    "chunk_tps": "tokens a second since the last line",
    "avg_tps": "tokens a second since the start",
    "cached": "tokens reused",
    "idle_s": "seconds since the slot last worked",
}
