"""The server's configuration: its own option names, and what a generation of the server does.

Two records: `ServerConfig` is what an operator sets (command line, R4.2, section 8), `Generation` is what a
build does whatever its options (section 10). A profile (`replay.profiles`) is one of each.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from parser.errors import UsageError
from replay.sizes import BY_FAMILY, Sizes

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Generation:
    """What a build does (rules by version; the table of section 10).

    `consumes`: a disk hit deletes a file longer than cold-max (R4.12). `resume_min`: shorter suffixes are
    evaluated token by token (R6.2). `exact_retry`: GLM goes back to the prompt's end (R5 of 3.1, R7.1).
    `images`: requests may hold images, under the gates of R3.10-R3.15. `polls`: a vanished client is noticed
    within 100 ms (R3.16, R6.11). `evicts_before`: eviction runs before a store; else after it, with the new
    file protected (R4.35). `superseded`: continued files that the new text extends count less (R4.32).
    `probe`: one probe serves router and execution (R3.20); without it an invalid checkpoint's text can still
    match (R3.6). `qwen_tools_key`: R3.22.
    """

    consumes: bool = False
    resume_min: int = 4
    exact_retry: bool = True
    images: bool = False
    polls: bool = False
    evicts_before: bool = True
    superseded: bool = True
    probe: bool = False
    qwen_tools_key: bool = False


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Options of one server process, and the policies that run in it. Tokens, MiB, seconds.

    `slots` is None for a server without `--batched-session` ("single"). `prefill_chunk` None: R6.1.
    `sizes` None: by family. `ring_rows` is `raw_kv_rows` of the start line. `scheduler`, `reuse` and `store`
    name policies: built in, an entry point, or `file.py:Class` (`replay.plugins`).
    """

    slots: int | None = None
    ctx: int = 32768
    family: str = "deepseek-v4"
    kv_disk: bool = True
    kv_disk_space_mb: int = 4096
    kv_cache_min_tokens: int = 512
    kv_cache_cold_max_tokens: int = 30000
    kv_cache_continued_interval_tokens: int = 10000
    kv_cache_boundary_trim_tokens: int = 32
    kv_cache_boundary_align_tokens: int = 2048
    prefill_chunk: int | None = None
    mixed_prefill_quantum: int = 128
    prefill_quantum: int = 2048
    exact_tool_replay: bool = True
    ring_rows: int | None = None
    sizes: Sizes | None = None
    scheduler: str = "common-prefix"
    reuse: str = "ladder"
    store: str = "profile"
    generation: Generation = field(default_factory=Generation)

    def __post_init__(self) -> None:
        """Refuse what the server refuses (log-formats ST12)."""
        if self.slots is not None and self.slots < 1:
            raise UsageError("E-CONFIG", f"slots must be `single` or at least 1, not {self.slots}")
        if self.family not in BY_FAMILY:
            known = ", ".join(BY_FAMILY)
            raise UsageError("E-CONFIG", f"family {self.family!r} is not known", hint=f"one of {known}")
        cold, least = self.kv_cache_cold_max_tokens, self.kv_cache_min_tokens
        if cold and cold < least:
            raise UsageError("E-CONFIG", "--kv-cache-cold-max-tokens must be 0 or >= --kv-cache-min-tokens")
        for name in ("ctx", "kv_cache_boundary_align_tokens", "mixed_prefill_quantum", "prefill_quantum"):
            if getattr(self, name) < 1:
                raise UsageError("E-CONFIG", f"--{name.replace('_', '-')} must be positive")
        if self.prefill_chunk is not None and self.prefill_chunk < 1:
            raise UsageError("E-CONFIG", "--prefill-chunk must be positive")

    @property
    def batched(self) -> bool:
        """R1.2: `--batched-session N`, also with N = 1."""
        return self.slots is not None

    @property
    def slot_count(self) -> int:
        """Resident sessions."""
        return self.slots or 1

    @property
    def budget_bytes(self) -> int:
        """Budget of all valid files together."""
        return self.kv_disk_space_mb * MIB

    @property
    def step(self) -> int:
        """R4.2: the continued interval rounded up to a multiple of the alignment; 0 for off."""
        align = self.kv_cache_boundary_align_tokens
        return -(-self.kv_cache_continued_interval_tokens // align) * align

    @property
    def chunk(self) -> int:
        """R6.1: the chunk that a sync is cut into."""
        if self.prefill_chunk is not None:
            return self.prefill_chunk
        if self.ctx <= 4096:
            return self.ctx
        return 8192 if self.family == "deepseek-v4-pro" else 4096

    @property
    def ring(self) -> int:
        """Raw rows a layer (`raw_kv_rows`): as printed, else the chunk and 256 rows more (seen in start lines)."""
        return self.chunk + 256 if self.ring_rows is None else self.ring_rows

    def file_bytes(self, tokens: int) -> int:
        """R4.4: bytes of a checkpoint's file, less its text and tool map."""
        return (self.sizes or BY_FAMILY[self.family])(tokens)
