"""The grammar of record: what each printed line says, and what people and forks may do to it."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from printed import printed, rendered

from parser.event import KINDS
from parser.events import explain_near_miss, parse_line
from parser.grammar import GRAMMAR_FILE, Grammar, grammar
from parser.schema import DTYPES
from parser.text_lane import TextLane

SPAN = {"span_start": 20480, "span_end": 25851, "span_tokens": 5371}

#: id of docs/spec/log-formats.md, message, symbol of the rule, fields that it must give (among others)
LINES = [
    ("LC1", "rewound GLM live prefix from 500 to 499; final prompt token will be reevaluated", "live_rewind__rewound", {"model": "GLM", "from": 500, "to": 499}),
    ("LC1", "rewound live prefix from 500 to 499; final prompt token will be reevaluated", "live_rewind__rewound", {"from": 500, "to": 499}),
    ("LC2", "GLM live prefix rewind from 500 to 499 requires rebuild", "live_rewind__refused", {"from": 500, "refusal": "requires rebuild"}),
    ("LC2", "live prefix rewind from 500 to 499 requires rebuild", "live_rewind__refused", {"to": 499}),
    ("LC2", "GLM live prefix rewind from 48816 to 48519 is not restorable; falling back to the prefill path", "live_rewind__refused", {"from": 48816, "to": 48519}),
    ("LC3a", "live kv cache miss live=89444 prompt=25847 common=27 reason=token-mismatch", "live_miss__miss", {"live": 89444, "prompt": 25847, "common": 27, "reason": "token-mismatch", "flags": []}),
    ("LC3a", "live kv cache miss RESPPROTO live=1 prompt=2 common=0 reason=token-mismatch", "live_miss__miss", {"flags": ["RESPPROTO"], "common": 0}),
    ("LC3b", "live kv cache miss live=9 prompt=8 common=7 vision=mismatch reason=live-prefix-match", "live_miss__miss", {"vision": "mismatch", "reason": "live-prefix-match"}),
    ("LC4", "multimodal live kv hit images=1 cached=334535 prompt=334603 identity=fingerprint-match", "multimodal_hit__hit", {"images": 1, "cached": 334535, "prompt": 334603, "identity": "fingerprint-match"}),
    ("LC5", "responses live continuation RESPPROTO match=visible-prefix ids=0 cached=5 prompt=9", "live_continuation__continuation", {"protocol": "responses", "match": "visible-prefix", "ids": 0, "cached": 5, "prompt": 9, "flags": ["RESPPROTO"]}),
    ("LC5", "responses live continuation match=tool-output-ids ids=2 cached=5 prompt=9", "live_continuation__continuation", {"ids": 2}),
    ("LC6", "anthropic live continuation match=tool-output-ids ids=3 cached=5 prompt=9", "live_continuation__continuation", {"protocol": "anthropic"}),
    ("LC7", "thinking live continuation match=visible-prefix cached=5 prompt=9", "live_continuation__continuation", {"protocol": "thinking", "cached": 5}),
    ("LC8", "responses replay RESPPROTO missing reasoning state; continuing from visible history source=disk-text cached=5 prompt=9", "live_continuation__replay", {"source": "disk-text", "cached": 5, "prompt": 9}),
    ("LC9", "thinking live checkpoint remembered ctx=20480..25851:5371 live=25923 visible=8000", "checkpoint__thinking_remembered", {**SPAN, "live": 25923, "visible": 8000}),
    ("LC10", "rewind point remembered pos=500 text=1200", "checkpoint__point_remembered", {"pos": 500, "text": 1200}),
    ("LC10", "rewind point hit pos=500 live=700 prompt=650", "live_rewind__point_hit", {"pos": 500, "live": 700, "prompt": 650}),
    ("LC10", "rewind point hit pos=500 is not restorable; falling back", "live_rewind__point_refused", {"pos": 500}),
    ("LC10", "session checkpoints are not implemented for this model", "startup__no_checkpoints", {}),
    ("PF1", "chat ctx=20480..25851:5371 TOOLS prompt start", "prompt_start__start", {**SPAN, "api": "chat", "flags": ["TOOLS"]}),
    ("PF1", "completion ctx=0..12:12 prompt start", "prompt_start__start", {"api": "completion", "flags": []}),
    ("PF2", "chat ctx=20480..25851:5371 RESPPROTO TOOLS prefill chunk 4096/5371 (76.3%) chunk=410.00 t/s avg=409.90 t/s 9.993s", "prefill_chunk__chunk", {**SPAN, "flags": ["RESPPROTO", "TOOLS"], "phase": "prefill", "done": 4096, "total": 5371, "percent": 76.3, "chunk_tps": 410.0, "avg_tps": 409.9, "elapsed_s": 9.993}),
    ("PF2", "chat ctx=10..20:10 tool checkpoint rebuild chunk 5/10 (50.0%) chunk=1.00 t/s avg=1.00 t/s 5.000s", "prefill_chunk__chunk", {"phase": "tool checkpoint rebuild", "done": 5}),
    ("PF3", "chat ctx=20480..25851:5371 TOOLS prompt done 13.142s", "prompt_done__done", {"elapsed_s": 13.142}),
    ("GN1", "chat ctx=25851..25901:50 gen=50 TOOLS THINKING decoding chunk=25.10 t/s avg=25.10 t/s 1.992s", "decoding__decoding", {"span_end": 25901, "gen": 50, "flags": ["TOOLS", "THINKING"], "chunk_tps": 25.1, "avg_tps": 25.1, "elapsed_s": 1.992}),
    ("FN1", "chat ctx=20480..25851:5371 gen=72 TOOLS DSML_START DSML_END finish=tool_calls 16.022s", "finish__finish", {"gen": 72, "finish": "tool_calls", "elapsed_s": 16.022}),
    ("FN2", 'chat ctx=20480..25851:5371 gen=1 finish=error error="a "quoted" text" 16.022s', "finish__finish", {"finish": "error", "error": 'a "quoted" text', "elapsed_s": 16.022}),
    ("TC1", "chat ctx=1..2:1 TOOLS recovered a complete tool call from unclosed reasoning after 44 generated tokens", "tool_repair__recovered", {"generated": 44}),
    ("TC2", "chat ctx=1..2:1 ignored orphan tool-call end marker after 44 generated tokens", "tool_repair__orphan", {"generated": 44}),
    ("TC3", "chat ctx=1..2:1 TOOLS repaired unterminated tool call (2 calls recovered)", "tool_repair__repaired", {"defect": "unterminated", "calls": 2}),
    ("TC3 old", "chat ctx=1..2:1 TOOLS repaired malformed tool call (2 calls recovered)", "tool_repair__repaired", {"defect": "malformed"}),
    ("TC3 old", "chat ctx=1..2:1 TOOLS repaired hallucinated tool_calls (stripped, no invoke found)", "tool_repair__hallucinated", {}),
    ("TC4", "chat ctx=1..2:1 TOOLS unterminated tool call; continuing with model-visible tool error", "tool_repair__visible_error", {"defect": "unterminated"}),
    ("TC5", "chat ctx=1..2:1 TOOLS invalid tool call; continuing with model-visible tool error", "tool_repair__visible_error", {"defect": "invalid"}),
    ("TC6", "chat ctx=1..2:1 TOOLS tool-error continuation appended 133 tokens", "tool_repair__continued", {"tokens": 133}),
    ("TC7", "chat ctx=1..2:1 TOOLS invalid tool call returned as assistant text finish=stop [text_len=9 saw_start=1 saw_end=0 text_snippet: <x> y z]", "tool_repair__as_text", {"finish": "stop", "text_len": 9, "saw_start": 1, "saw_end": 0}),
    ("TC7 old", "chat ctx=1..2:1 invalid tool call returned as assistant text finish=stop", "tool_repair__as_text", {"finish": "stop"}),
    ("TC7b", "chat ctx=1..2:1 TOOLS invalid tool call dsml_snippet: (none)", "tool_repair__dsml_snippet", {"snippet": "(none)"}),
    ("TC8", "tool calls ctx=20480..25851:5371 RESPPROTO n=2 raw_tool_text=1 ids=[call_x,call_y] names=[read,?]", "tool_calls__calls", {**SPAN, "flags": ["RESPPROTO"], "n": 2, "raw_tool_text": 1, "ids": ["call_x", "call_y"], "names": ["read", "?"]}),
    ("TC8 05-14", "tool calls ctx=1..2:1 n=1 raw_dsml=0 ids=[call_x] names=[read]", "tool_calls__calls", {"raw_dsml": 0}),
    ("TC8 05-07", "tool calls ctx=1..2:1 n=1 names=[read]", "tool_calls__calls", {"n": 1, "names": ["read"]}),
    ("TC9", "incomplete DeepSeek tool call: stop=context limit token=5 generated=6 limit=7 room=8", "tool_repair__incomplete", {"model": "DeepSeek", "stop": "context limit", "token": 5, "generated": 6, "limit": 7, "room": 8}),
    ("TC old", "chat ctx=1..2:1 TOOLS tool call inside unclosed <think>; forced </think> after 11 generated tokens", "tool_repair__forced_close", {"generated": 11}),
    ("1.1", "thinking not closed, ignoring incomplete GLM tool calls in reasoning", "tool_repair__not_closed", {"ignored": "incomplete GLM tool calls in reasoning"}),
    ("1.1 old", "thinking not closed, ignoring DSML in reasoning", "tool_repair__not_closed", {}),
    ("DS1", "kv cache stored tokens=89444 trimmed=0 reason=evict key=token-text size=1197.29 MiB save=812.4 ms", "kv_stored__stored", {"tokens": 89444, "trimmed": 0, "reason": "evict", "key": "token-text", "size_mib": 1197.29, "save_ms": 812.4}),
    ("DS1 old", "kv cache stored tokens=29571 trimmed=-3 reason=cold size=411.16 MiB save=98.2 ms", "kv_stored__stored", {"trimmed": -3, "size_mib": 411.16}),
    ("DS2", "kv cache skipped tokens=5 reason=continued because live checkpoint is at -1", "kv_skipped__live_elsewhere", {"tokens": 5, "live": -1}),
    ("DS3", "kv cache skipped tokens=5 because rendered text is too large", "kv_skipped__text_too_large", {"tokens": 5}),
    ("DS4", "kv cache skipped tokens=5 reason=evict because tool map size overflowed", "kv_skipped__tool_map", {"reason": "evict"}),
    ("DS5", "kv cache skipped tokens=5 reason=evict because KV payload staging failed: session has no valid checkpoint to stage", "kv_skipped__staging", {"error": "session has no valid checkpoint to stage"}),
    ("DS6", "kv cache skipped tokens=5 reason=evict because estimated file size 5.10 MiB (5.30 MiB with safety) exceeds budget 4.00 MiB", "kv_skipped__estimate", {"size_mib": 5.1, "safety_mib": 5.3, "budget_mib": 4.0}),
    ("DS7", "kv cache skipped tokens=5 reason=evict because final file size 5.10 MiB (5.30 MiB with safety) exceeds budget 4.00 MiB save=7.5 ms", "kv_skipped__final_size", {"save_ms": 7.5}),
    ("DS8", "kv cache store failed (evict): No space left on device save=7.5 ms", "kv_failed__store", {"reason": "evict", "error": "No space left on device", "save_ms": 7.5}),
    ("DS8", "kv cache failed to create /kv/a b.tmp: Permission denied save=0.1 ms", "kv_failed__create", {"error": "/kv/a b.tmp: Permission denied", "save_ms": 0.1}),
    ("DS8", "kv cache replaced incompatible file /kv (old)/x.kv", "kv_discarded__incompatible", {"file": "/kv (old)/x.kv"}),
    ("DS9", "kv cache hit text RESPPROTO tokens=20480 text=84012 quant=2 key=token-text load=301.7 ms file=/kv/x y.kv", "kv_hit__hit", {"flags": ["RESPPROTO"], "tokens": 20480, "text": 84012, "quant": 2, "key": "token-text", "load_ms": 301.7, "file": "/kv/x y.kv"}),
    ("DS9o", "kv cache hit text tokens=20480 text=84012 quant=2 key=token-text load=301.7 ms consumed file=/kv/x.kv", "kv_hit__hit", {"consumed": True, "file": "/kv/x.kv"}),
    ("DS9oo", "kv cache hit tokens=18432 quant=4 load=49.7 ms file=/tmp/x.kv", "kv_hit__hit", {"tokens": 18432, "quant": 4}),
    ("DS10", "kv cache load failed RESPPROTO /kv/x.kv: invalid header load=0.3 ms", "kv_failed__load", {"error": "/kv/x.kv: invalid header", "load_ms": 0.3}),
    ("DS11", "kv cache discarded corrupt text-prefix payload RESPPROTO /kv/x.kv", "kv_discarded__corrupt", {"payload": "text-prefix payload", "file": "/kv/x.kv"}),
    ("DS11 old", "kv cache discarded corrupt token prefix /kv/x.kv", "kv_discarded__corrupt", {"payload": "token prefix"}),
    ("DS12", "kv cache evicted reason=disk-cache-full tokens=10240 hits=0 size=157.34 MiB file=/kv/x.kv", "kv_evicted__evicted", {"reason": "disk-cache-full", "tokens": 10240, "hits": 0, "size_mib": 157.34, "file": "/kv/x.kv"}),
    ("DS12 old", "kv cache evicted tokens=10240 hits=0 size=157.34 MiB", "kv_evicted__evicted", {"tokens": 10240}),
    ("DS13", "kv cache discarded reason=prefill-failed file=/kv/x.kv", "kv_discarded__prefill_failed", {"file": "/kv/x.kv"}),
    ("DS13 old", "kv cache evicted reason=prefill-failed file=/kv/x.kv", "kv_discarded__prefill_failed", {"file": "/kv/x.kv"}),
    ("DS14", "kv cache failed to discard prefill-failed file=/kv/x.kv: Permission denied", "kv_discarded__not_discarded", {}),
    ("DS15", "kv cache thinned reason=ladder tokens=10240 size=157.34 MiB file=/kv/x.kv", "kv_evicted__thinned", {"reason": "ladder", "tokens": 10240}),
    ("TK1", "tool checkpoint canonicalized ctx=1..2:1 common=3 live=4 canonical=5", "checkpoint__canonicalized", {"common": 3, "live": 4, "canonical": 5}),
    ("TK1 old", "thinking checkpoint canonicalized ctx=1..2:1 common=3 live=4 canonical=5 via=disk cached=2", "checkpoint__canonicalized", {"via": "disk", "cached": 2}),
    ("TK2", "tool checkpoint canonicalization needs 77 tokens rebuild ctx=1..2:1 request_ctx=3..9:6 reason=canonical-tail-rewrite tail=1 discard=2 common=3 live=4 target=5 cached=6 source=disk file=/kv/x.kv", "checkpoint__needs_rebuild", {"rebuild_tokens": 77, "request_span_end": 9, "target": 5, "source": "disk", "file": "/kv/x.kv"}),
    ("TK2 old", 'tool checkpoint canonicalization needs rebuild ctx=1..2:1 common=3 live=4 canonical=5 reason="no disk"', "checkpoint__needs_rebuild", {"canonical": 5, "reason": "no disk"}),
    ("TK3", "tool checkpoint rebuild done ctx=1..2:1 request_ctx=3..9:6 source=full cached=0 replay=7 target=8 1.250s", "checkpoint__rebuild_done", {"source": "full", "replay": 7, "elapsed_s": 1.25}),
    ("TK4", 'tool checkpoint rebuild failed ctx=1..2:1 request_ctx=3..9:6 source=disk cached=0 replay=7 target=8 error="x"', "checkpoint__rebuild_failed", {"error": "x"}),
    ("TK5", 'tool checkpoint canonicalization failed ctx=1..2:1 common=3 live=4 canonical=5 error="x y"', "checkpoint__failed", {"error": "x y"}),
    ("TK6", "multimodal tool checkpoint canonicalization skipped ctx=1..2:1 common=3 live=4 canonical=5 reason=preserve-image-state", "checkpoint__skipped", {"reason": "preserve-image-state"}),
    ("SE1", "chat ctx=1..2:1 TOOLS stream closed during prefill", "stream_error__closed", {}),
    ("SE2", "completion ctx=1..2:1 sse headers failed", "stream_error__headers", {"api": "completion"}),
    ("SE3", "chat ctx=1..2:1 anthropic stream start failed", "stream_error__anthropic", {}),
    ("SE4", "chat ctx=1..2:1 openai role chunk failed", "stream_error__openai", {}),
    ("SE5", "chat ctx=1..2:1 RESPPROTO responses created event failed", "stream_error__responses", {}),
    ("SE6", "chat ctx=1..2:1 prefill failed after stream closed: metal prefill failed", "stream_error__prefill_failed", {"error": "metal prefill failed"}),
    ("SE7", "chat ctx=1..2:1 prefill SSE error failed: metal prefill failed", "stream_error__sse_error", {"error": "metal prefill failed"}),
    ("SE8", "chat ctx=1..2:1 TOOLS final stream failed", "stream_error__final", {}),
    ("SE9", "chat ctx=1..2:1 TOOLS client disconnected", "stream_error__disconnected", {}),
    ("MM1", "vision embedding cache hit", "vision_cache__hit", {}),
    ("MM2", "vision embedding encoded; cache=123456 bytes", "vision_cache__encoded", {"cache_bytes": 123456}),
    ("BT1", "decode batch count=4 elapsed=340.900 ms status=ok", "decode_batch__batch", {"count": 4, "elapsed_ms": 340.9, "status": "ok"}),
    ("RT1", "slot 1: request reuses nothing; evicting checkpoint (500 tokens, idle 12 s, protected)", "slot_evicting__evicting", {"slot": 1, "tokens": 500, "idle_s": 12, "state": "protected"}),
    ("ST1", "context buffers 1739.75 MiB (ctx=65536, backend=cuda, prefill_chunk=4096, raw_kv_rows=4352, compressed_kv_rows=16386)", "startup__context", {"size_mib": 1739.75, "ctx": 65536, "backend": "cuda", "prefill_chunk": 4096, "raw_kv_rows": 4352, "compressed_kv_rows": 16386}),
    ("ST2", "2 resident sessions request at least 3.40 GiB of context buffers", "startup__sessions", {"resident_sessions": 2, "size_gib": 3.4}),
    ("ST3", "failed to create metal session 2/3", "startup__session_failed", {"backend": "metal", "session": "2/3"}),
    ("ST3 old", "failed to create Metal session", "startup__session_failed", {"backend": "Metal"}),
    ("ST4", "KV disk cache /my kv (x) (budget=8192 MiB, cross-quant=accept, min=512, cold_max=30000, continued=10000, trim=32, align=2048, hit_half_life=21600s)", "startup__kv_disk", {"dir": "/my kv (x)", "budget_mib": 8192, "cross_quant": "accept", "min": 512, "cold_max": 30000, "continued": 10000, "trim": 32, "align": 2048, "hit_half_life_s": 21600}),
    ("ST4 old", "KV disk cache /kv (budget=8192 MiB, cross-quant=reject, min=512, cold_max=30000, continued=10000, trim=32, align=2048)", "startup__kv_disk", {"align": 2048}),
    ("ST5", "failed to create KV cache directory /kv: Permission denied", "startup__kv_disk_failed", {"error": "/kv: Permission denied"}),
    ("ST6", "exact DSML tool replay disabled; tool history uses canonical JSON rendering", "startup__dsml_replay", {}),
    ("ST7", "batched mode enabled resident_sessions=2 prefill_quantum=2048 mixed_prefill_quantum=128 decode_coalesce_us=2000", "startup__batched", {"resident_sessions": 2, "prefill_quantum": 2048, "mixed_prefill_quantum": 128, "decode_coalesce_us": 2000}),
    ("ST8", "MTP speculative decoding is disabled while native session batching is active", "startup__mtp", {}),
    ("ST9", "tracing session to /tmp/trace file.txt", "startup__trace", {"file": "/tmp/trace file.txt"}),
    ("ST10", "listening on http://127.0.0.1:8000", "startup__listening", {"host": "127.0.0.1", "port": 8000}),
    ("ST11", "failed to open trace file /x: Permission denied", "startup__error", {"error": "/x: Permission denied"}),
    ("ST11", "failed to start decode coordinator", "startup__error", {}),
    ("ST11", "failed to start session worker 1/2", "startup__error", {}),
    ("ST11", "failed to start worker", "startup__error", {}),
    ("ST11", "failed to listen on 0.0.0.0:8000: Address already in use", "startup__error", {}),
    ("ST12", "invalid value for --ctx: abc", "startup__error", {}),
    ("ST12", "unknown option: --foo", "startup__error", {}),
    ("ST12", "invalid --backend value: abc", "startup__error", {"option": "--backend"}),
    ("ST12", "valid server backends are: metal, rocm, cpu", "startup__error", {}),
    ("ST12", "--prefill-chunk must be positive", "startup__error", {}),
    ("SD1", "shutdown requested, draining requests", "shutdown__requested", {}),
    ("SD2", "persisting resident KV cache before shutdown slot=0 tokens=2411", "shutdown__persisting", {"which": "resident", "slot": 0, "tokens": 2411}),
    ("SD2o", "persisting current KV cache before shutdown tokens=2411", "shutdown__persisting", {"which": "current", "tokens": 2411}),
    ("engine", "ds4: memory: KV 1.20 GiB (raw 0.36 + compressed 0.84) + buffers 0.50 GiB + resident model 80.76 GiB = 82.46 GiB planned", "startup__memory", {"kv_gib": 1.2, "raw_gib": 0.36, "compressed_gib": 0.84, "buffers_gib": 0.5, "model_gib": 80.76, "planned_gib": 82.46}),
    ("engine", "ds4: memory detail: ctx=65536 prefill_cap=4096 raw_kv_rows=4352 compressed_kv_rows=16386 backend=cuda", "startup__memory_detail", {"ctx": 65536, "backend": "cuda"}),
    ("engine", "ds4: shared session prefill workspace enabled: cap=4096, 1.93 GiB total GPU memory; each additional session aliases this allocation", "startup__workspace", {"cap": 4096, "workspace_gib": 1.93}),
    ("engine", "ds4: Metal device Apple M4 Max, 64.00 GiB RAM", "startup__metal_device", {"device": "Apple M4 Max, 64.00 GiB RAM"}),
    ("engine", "ds4: Metal 4 tensor API enabled for Tensor kernels", "startup__metal_4", {}),
    ("engine", "ds4: Metal SSD streaming mode enabled; full model residency and warmup are skipped", "startup__metal_streaming", {}),
    ("engine", "ds4: Metal model views created in 6.102 ms, residency requested in 911.480 ms, warmup 2.417 ms (mapped 83104.55 MiB from offset 5.12 MiB)", "startup__metal_views", {"created_ms": 6.102, "residency_ms": 911.48, "warmup_ms": 2.417, "mapped_mib": 83104.55, "offset_mib": 5.12}),
    ("engine", "ds4: Metal mapped mmaped model as 3 overlapping shared buffers", "startup__metal_mapped", {"buffers": 3}),
    ("engine", "ds4: MTP support model loaded: /m/x.gguf (draft=1)", "startup__mtp_model", {}),
    ("engine", "ds4: cuda backend initialized for graph diagnostics", "startup__backend", {"backend": "cuda"}),
    ("engine", "ds4: GPU config: 1 device [0] requested, budgets 5 GB; auto=true", "startup__gpu_config", {"devices": 1}),
    ("engine", "tensor parallelism bound: rank 0, 50/50 expert split, rdma transport", "startup__tensor_parallel", {"rank": 0}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("message", "symbol", "fields"),
    [line[1:] for line in LINES],
    ids=[f"{line[0]}-{n}" for n, line in enumerate(LINES)],
)
@pytest.mark.parametrize("lane", ["auto", "lark"])
def test_every_template_of_the_specification(message, symbol, fields, lane):
    event = parse_line(f"0915 10:00:01 ds4-server: {message}", lane=lane)
    assert f"{event.kind}__{event.rule}" == symbol
    assert {name: event.fields.get(name) for name in fields} == fields
    assert event.extra == ({"rest": "to the prefill path"} if "prefill path" in message else {})


def test_the_table_above_leaves_no_rule_out():
    assert set(grammar().rules) - {symbol for _, _, symbol, _ in LINES} == {
        "kv_skipped__other",
        "live_miss__bare",
    }


#: what people make of a line (mechanisms 2.2): the line, its kind, some of its fields
BY_HAND = [
    ("kv cache stored tokens=61344 ... reason=evict", "kv_stored", {"tokens": 61344, "reason": "evict"}),
    ("kv cache hit text tokens=61344 ... load=... ms", "kv_hit", {"tokens": 61344, "load_ms": None}),
    ("chunk 20480/22391 (91.5%)", "prefill_chunk", {"done": 20480, "total": 22391, "percent": 91.5}),
    ("live=5 prompt=6 common=4", "live_miss", {"live": 5, "prompt": 6, "common": 4}),
    ("TOOLS prompt done 203.518s", "prompt_done", {"flags": ["TOOLS"], "elapsed_s": 203.518}),
    ("prompt done    6.412s", "prompt_done", {"elapsed_s": 6.412, "flags": None}),
    ("TOOLS stream closed during prefill", "stream_error", {"flags": ["TOOLS"]}),
    ("live kv cache miss live=68240 prompt=12715 common=1   ← helper task", "live_miss", {"common": 1}),
    ("live kv cache miss live=68240 prompt=12715 common=1  # helper", "live_miss", {"common": 1}),
    ("live kv cache miss live=68240 prompt=12715 common=1 -> helper", "live_miss", {"common": 1}),
    ("live kv cache miss live=68240 prompt=12715 common=1 (helper)", "live_miss", {"common": 1}),
    ("live kv cache miss slot=1 live=5 prompt=6 common=4 reason=token-mismatch", "live_miss", {"live": 5, "reason": "token-mismatch"}),
    ("kv cache stored tokens=5 reason=evict trimmed=0", "kv_stored", {"trimmed": 0, "reason": "evict"}),
    ("chat ctx=14336..16209:1873 prefill chunk 1873/1873 (100.0%) chunk=409.22 t/s 4.577s", "prefill_chunk", {"chunk_tps": 409.22, "avg_tps": None, "elapsed_s": 4.577}),
    ("chat ctx=... TOOLS prompt start", "prompt_start", {"span_end": None, "flags": ["TOOLS"]}),
    ("tool checkpoint canonicalization needs rebuild ... common=14209 live=14377 canonical=14301", "checkpoint", {"common": 14209, "canonical": 14301}),
    ("tool checkpoint canonicalized ... live=14377 canonical=14301 via=rebuild", "checkpoint", {"live": 14377, "via": "rebuild"}),
    ("kv cache evicted reason=disk-cache-full tokens=5 hits=0 size=1.00 MiB file=.../c41d09b7....kv", "kv_evicted", {"file": ".../c41d09b7....kv"}),
    ("chat ctx=1..2:1 TOOLS tool call inside unclosed  thinking; forced  after 11 generated tokens", "tool_repair", {"generated": 11}),
    ("tool calls ctx=1..2:1 n=2 raw_dsml=1 ids=[a,b] names=[list,li", "tool_calls", {"names": ["list", "li"]}),
    ('chat ctx=1..2:1 gen=5 finish=error error="client stream wr', "finish", {"error": "client stream wr"}),
]  # fmt: skip


@pytest.mark.parametrize(("message", "kind", "fields"), BY_HAND, ids=[line[0][:40] for line in BY_HAND])
@pytest.mark.parametrize("head", ["", "11:20:57  ", "0915 10:00:01 ds4-server: "])
def test_what_people_make_of_a_line_counts(message, kind, fields, head):
    event = parse_line(head + message)
    assert event.kind == kind
    assert {name: event.fields.get(name) for name in fields} == fields


@pytest.mark.parametrize(
    "message",
    [
        "live kv cache miss live=... prompt=... common=...",
        "live kv cache miss live=%d prompt=%d common=%d reason=%s",
        "live kv cache miss ... common=0 vision=mismatch reason=token-mismatch",
        "kv cache stored tokens=<n> trimmed=0 reason=evict",
        "kv cache stored tokens=512 trimmed=0 reason=cold/evict",
        "kv cache stored tokens=512k",
        "stored  10240 continued  size=157.35 MiB",
        "evicted 20480 hits=0",
        "prefill done 900s",
        "common=9000 x12",
        "common=97216",
        "finish=%s",
        "prompt done",
        "chunk 5/6",
        "the live kv cache miss live=5 prompt=6 common=4",
        "hits=140 misses=35 hit_rate=0.800 wraps=0 evictions=12",
    ],
)
def test_placeholders_digests_and_prose_do_not_count(message):
    assert parse_line(message).kind == "foreign"
    assert parse_line(f"0915 10:00:01 ds4-server: {message}").kind == "unknown"


def test_fields_of_forks_are_kept_under_extra():
    event = parse_line(
        "0607 13:18:40 ds4-server: chat ctx=0..6914:6914 gen=198 TOOLS DSML_START DSML_END finish=tool_calls "
        "decode=6.83 t/s decode_sec=28.991 total=177.350s total_tps=1.12 t/s"
    )
    assert event.kind == "finish"
    assert event.extra == {
        "decode": "6.83 t/s",
        "decode_sec": "28.991",
        "total": "177.350s",
        "total_tps": "1.12 t/s",
    }


def test_words_that_no_rule_knows_are_kept():
    assert parse_line("kv cache stored tokens=5 trimmed=0 and more words").extra == {"rest": "and more words"}


def test_a_number_that_fits_nowhere_is_unknown_but_kept():
    event = parse_line("ds4-server: kv cache stored tokens=99999999999999999999 trimmed=0 reason=evict")
    assert (event.kind, event.get("tokens"), event.extra) == (
        "kv_stored",
        None,
        {"tokens": "99999999999999999999"},
    )


def test_start_up_errors_count_only_behind_the_servers_name():
    assert parse_line("ds4-server: failed to start worker").kind == "startup"
    assert parse_line("failed to start worker").kind == "foreign"


def test_another_programs_name_may_stand_before_lines_of_the_disk_store():
    assert (
        parse_line("ds4-agent: kv cache stored tokens=5 trimmed=0 reason=agent-session").get("reason")
        == "agent-session"
    )
    assert parse_line("my-agent: kv cache stored tokens=5 trimmed=0 reason=evict").kind == "kv_stored"
    assert parse_line("my-agent: prompt start").kind == "foreign"


@settings(max_examples=400)
@given(printed())
def test_printed_parsed_and_printed_again(line):
    for lane in (TextLane(grammar()), LARK):
        parsed = lane.parse(line.text)
        assert parsed is not None
        assert parsed.rule == line.template.rule
        assert {**parsed.fields, "flags": parsed.fields.get("flags") or line.fields.get("flags")} == {
            "flags": None,
            **line.fields,
        }
        assert rendered(line.template.like(line.text), parsed.fields) == line.text


LARK = TextLane(grammar(), printed=False)


@settings(max_examples=200)
@given(printed())
def test_no_line_is_of_two_kinds(line):
    kinds = {t.rule.kind for t in grammar().templates if grammar().pattern(t).fullmatch(line.text)}
    assert kinds == {line.template.rule.kind}


def test_a_field_has_one_type_of_column_within_a_kind():
    for kind in KINDS:
        of_rules = [rule.types for rule in grammar().rules.values() if rule.kind == kind]
        for name in {name for types in of_rules for name in types}:
            assert len({str(DTYPES.get(types[name], "text")) for types in of_rules if name in types}) == 1, (
                kind,
                name,
            )


def test_every_form_holds_a_literal_to_look_for():
    assert min(len(template.needle) for template in grammar().templates) >= 4


def test_a_new_line_kind_is_one_rule_and_nothing_else(tmp_path):
    text = (
        GRAMMAR_FILE.read_text()
        + '\nslot_evicting__parked: "slot " slot " parked for " idle_s__n " s" (state | _more)*\nidle_s__n: INT\n'
    )
    new = Grammar(text)
    line = b"0915 10:00:01 ds4-server: slot 3 parked for 77 s mood=calm\n0915 10:00:02 ds4-server: slot 3 parked for 78 s\n"
    from parser.lanes import InColumns, LineByLine
    from parser.sources import Block

    block = Block(0, line, 0, 1, 2)
    lark = LineByLine(TextLane(new, printed=False)).prepare(block).log(0, new)
    fast = InColumns(new, TextLane(new)).prepare(block).log(0, new)
    assert list(lark.rows("slot_evicting")) == list(fast.rows("slot_evicting"))
    assert [(e.rule, e.fields, e.extra) for e in fast.rows("slot_evicting")] == [
        ("parked", {"slot": 3, "idle_s": 77}, {"mood": "calm"}),
        ("parked", {"slot": 3, "idle_s": 78}, {}),
    ]
    assert (
        parse_line(line.decode().splitlines()[0]).kind == "unknown"
    )  # the grammar of record does not know it


def test_lark_says_where_a_line_leaves_the_rule_it_nearly_meets():
    miss = explain_near_miss("0915 10:00:01 ds4-server: live kv cache miss live=5 prompt=x common=4")
    assert (miss.rule, miss.column, miss.expected) == ("live_miss__miss", 34, ("INT",))
    assert explain_near_miss("kv cache stored tokns=5").expected[0] == "' tokens='"
    assert explain_near_miss("chat ctx=1..2:1 prompt start") is None
    assert explain_near_miss("nothing like it") is None


def test_the_grammar_names_each_id_of_the_specification():
    comments = " ".join(re.findall(r"^//(.*)$", GRAMMAR_FILE.read_text(), re.MULTILINE))
    missing = [one for one in IDS if not re.search(rf"\b{one}\b", comments)]
    assert not missing


IDS = [
    "LC1", "LC2", "LC3a", "LC3b", "LC4", "LC5", "LC6", "LC7", "LC8", "LC9", "LC10", "PF1", "PF2", "PF3", "GN1", "FN1", "FN2",
    "TC1", "TC2", "TC3", "TC4", "TC5", "TC6", "TC7", "TC7b", "TC8", "TC9", "DS1", "DS2", "DS7", "DS8", "DS9", "DS10", "DS11",
    "DS12", "DS13", "DS14", "DS15", "TK1", "TK2", "TK3", "TK4", "TK5", "TK6", "SE1", "SE5", "SE6", "SE7", "SE8", "SE9",
    "MM1", "MM2", "BT1", "RT1", "ST1", "ST2", "ST3", "ST4", "ST5", "ST6", "ST7", "ST8", "ST9", "ST10", "ST11", "ST12",
    "SD1", "SD2", "SD2o",
]  # fmt: skip


@given(st.text(max_size=80))
@settings(max_examples=100)
def test_no_text_breaks_it(text):
    parse_line(text)
