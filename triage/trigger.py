"""The trigger of one miss: why the live state was of no use (mechanisms 3.1). The first rule that fits names it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from triage.episodes import Episode
from triage.setting import Setting, Trigger, instructions_end, opens_again, running_beside, setting_of
from triage.turns import Alternation, goes_unmissed
from triage.view import View

#: rules whose line closes a think block or repairs a call (3.1.4)
REPAIRS: Final = ("recovered", "orphan", "repaired", "hallucinated", "forced_close")


def triggers(view: View) -> dict[int, Trigger]:
    """`id(episode)` -> trigger, for every episode that missed (once per view)."""
    if "triggers" not in view.memo:
        setting = setting_of(view)
        named = {id(e): _name(e, setting) for e in view.episodes}
        view.memo["triggers"] = {key: trigger for key, trigger in named.items() if trigger is not None}
    found: dict[int, Trigger] = view.memo["triggers"]
    return found


def _name(episode: Episode, setting: Setting) -> Trigger | None:
    rules = _RULES if episode.miss is not None else _SILENT_RULES
    return next((t for t in (rule(episode, setting) for rule in rules) if t is not None), None)


# -- the rules, in their order -------------------------------------------------------------------------


def _invalid(episode: Episode, _: Setting) -> Trigger | None:
    if episode.common == 0 and (episode.live or 0) > 0:
        return Trigger("invalid-checkpoint", "C = 0: not even the start token of the live state counts")
    return None


def _retry(episode: Episode, _: Setting) -> Trigger | None:
    if (
        episode.common is not None
        and episode.common == episode.prompt
        and (episode.live or 0) >= episode.common
    ):
        return Trigger("exact-retry-no-rewind", "C = P <= L: the prompt is a prefix of the live state")
    return None


def _small(episode: Episode, setting: Setting) -> Trigger | None:
    if max(episode.live or 0, episode.prompt or 0) < setting.view.limits.large_tokens:
        return Trigger("", "fewer tokens than the smallest checkpoint: too small to matter")
    return None


def several_slots(view: View, episode: Episode) -> bool:
    """Evidence of two or more slots: start lines, `slot N:`, overlapping requests, flags."""
    slots = view.slots(episode)
    return (slots or 0) > 1 or (slots is None and bool(view.of("slot_evicting")))


def _head_only(episode: Episode, setting: Setting) -> Trigger | None:
    limits = setting.view.limits
    if episode.common is None or episode.common >= limits.head_tokens:
        return None
    if several_slots(setting.view, episode):
        return _head_on_slots(episode, setting)
    return _head_on_one(episode, setting)


def _head_on_slots(episode: Episode, setting: Setting) -> Trigger:
    view, group = setting.view, setting.turning.get(id(episode))
    if (
        group is not None
        and _all_taken(episode, setting)
        and group.conversations > (view.slots(episode) or 2)
    ):
        return _too_few(episode, group, setting)
    if (episode.live or 0) < view.limits.large_tokens:
        return Trigger(
            "unrelated-prompt", "the state that was pushed out is smaller than the smallest checkpoint"
        )
    idle = next((e.get("idle_s") for e in episode.of("slot_evicting")), None)
    if idle is not None and idle >= view.limits.idle_victim_s:
        return Trigger("unrelated-prompt", f"all slots were held and the victim was idle for {idle} s")
    return Trigger(
        "slot-steal-trivial-prefix",
        f"C = {episode.common} is no more than the head of the chat template, yet a state of "
        f"{episode.live} tokens was given up for it",
        "config",
    )


def _head_on_one(episode: Episode, setting: Setting) -> Trigger:
    view, group = setting.view, setting.turning.get(id(episode))
    live, prompt = episode.live or 0, episode.prompt or 0
    known = view.slots(episode) == 1
    if group is not None and id(episode) in (setting.returned | setting.comes_back):
        if known and not group.side_calls and len(group.returns) > 1:
            return _too_few(episode, group, setting)
        grade = "turns" if known else "possible"
        return Trigger(
            "side-calls-on-one-slot",
            "another conversation took the slot, and the displaced one comes back",
            grade,
            () if known else ("slot-steal-trivial-prefix", "too-few-slots"),
            _healed_return(episode, setting),
        )
    small = prompt < live * view.limits.side_call_share
    if (small or _other_flags(episode)) and not goes_unmissed(setting.view, episode):
        why = (
            "the prompt is small beside the state it pushed out"
            if small
            else "the flags of the two requests differ"
        )
        return Trigger("side-calls-on-one-slot", why, "turns" if known else "possible", ("unrelated-prompt",))
    return Trigger(
        "unrelated-prompt",
        "only the head of the chat template is shared, and nothing shows that the displaced conversation returns",
        alternatives=("side-calls-on-one-slot",),
    )


def _other_flags(episode: Episode) -> bool:
    """TOOLS or RESPPROTO differ between this request and the one before."""
    before = episode.previous
    if before is None or before.how == "line" or before.request is None or not episode.spanned:
        return False
    kind = {"TOOLS", "RESPPROTO"}
    return bool((set(before.flags) & kind) ^ (set(episode.flags) & kind))


def _forced(episode: Episode, setting: Setting) -> Trigger | None:
    before, limits = episode.previous, setting.view.limits
    if before is None or episode.common is None:
        return None
    repaired = [e for e in episode.before if e.kind == "tool_repair" and e.rule in REPAIRS]
    if repaired and limits.forced_low_tokens <= episode.common - before.prompt <= limits.forced_high_tokens:
        return Trigger(
            "forced-think-close", "the server closed a think block or repaired a call in the turn before"
        )
    return None


def _turn_taking(episode: Episode, setting: Setting) -> Trigger | None:
    group = setting.turning.get(id(episode))
    if group is not None:
        return _taking_turns(episode, group, setting)
    if id(episode) in setting.pinned:
        return Trigger(
            "client-transient-tail", "the same C in three or more misses of one growing conversation", "turns",
            ("client-early-edit",),
        )  # fmt: skip
    return None


def _taking_turns(episode: Episode, group: Alternation, setting: Setting) -> Trigger:
    view, slots = setting.view, setting.view.slots(episode)
    cheap = _healed_return(episode, setting)
    if group.side_calls and not several_slots(view, episode):
        grade, others = (
            ("turns", ()) if slots == 1 else ("possible", ("slot-steal-shared-prefix", "too-few-slots"))
        )
        return Trigger(
            "side-calls-on-one-slot",
            "a small request takes turns with a large conversation",
            grade,
            others,
            cheap,
        )
    if slots == 1:
        return _too_few(episode, group, setting)
    if slots is None and not several_slots(view, episode):
        return Trigger(
            "slot-steal-shared-prefix",
            "conversations with one common head take turns; whether a slot was free is not in the input",
            "possible",
            ("side-calls-on-one-slot", "too-few-slots"),
        )
    if _all_taken(episode, setting) and (group.conversations > (slots or 2) or episode.of("slot_evicting")):
        return _too_few(episode, group, setting)
    if slots is not None and running_beside(view, episode) >= slots - 1:
        return _too_few(episode, group, setting)
    sure = setting.used_slots.get(episode.request.run, 9) < (slots or 2)
    return Trigger(
        "slot-steal-shared-prefix",
        "the request shares only the common head with the state that it pushed out"
        + (", and another slot was never used" if sure else ""),
        "config" if sure else "turns",
    )


def _too_few(episode: Episode, group: Alternation, setting: Setting) -> Trigger:
    slots = setting.view.slots(episode) or 1
    return Trigger(
        "too-few-slots",
        f"{max(group.conversations, slots + 1)} conversations take turns in {slots} slot{'' if slots == 1 else 's'}",
        "turns",
        cheap=False,
    )


def _all_taken(episode: Episode, setting: Setting) -> bool:
    """Every configured slot is held at that time (or the log does not label slots)."""
    if episode.of("slot_evicting"):
        return True
    slots = setting.view.slots(episode) or 2
    return setting.used_slots.get(episode.request.run, slots) >= slots


def _healed_return(episode: Episode, setting: Setting) -> bool:
    """The displaced conversation came back from the disk within max(1024, 5 %) of its length."""
    back = setting.returned.get(id(episode)) or setting.comes_back.get(id(episode))
    if back is None:
        return False
    limits, lost = setting.view.limits, back.displaced.live or 0
    depth = back.episode.depth
    return depth is not None and lost - depth <= max(limits.shallow_tokens, lost * limits.shallow_share)


def _images(episode: Episode, setting: Setting) -> Trigger | None:
    share = setting.view.limits.image_share
    if (episode.common or 0) < share * (episode.prompt or 1):
        return None
    if setting.view.images_known(episode) or setting.view.memo.get("images_in_prose"):
        if episode.hit_tokens or (episode.start and not episode.of("multimodal_hit")):
            return None  # the disk answered: a text request
        return Trigger(
            "multimodal-all-or-nothing",
            "images are in the conversation and the whole state was dropped",
            "config",
        )
    return None


def _reply(episode: Episode, setting: Setting) -> Trigger | None:
    limits, before = setting.view.limits, episode.previous
    live, common = episode.live, episode.common
    if live is None or common is None:
        return None
    if before is not None:
        if abs(common - before.prompt) > limits.reply_slack_tokens:
            return None
    elif live - common > limits.unknown_reply_tokens or common < live / 2 or _fresh_session(episode, setting):
        return None
    return _reasoning_left_out(episode, setting) or _by_finish(episode)


def _reasoning_left_out(episode: Episode, setting: Setting) -> Trigger | None:
    """The trace settles it: the prompt closes the think block where the live state goes on thinking."""
    record = setting.view.reading.trace.get(episode.request.request)
    row = next((r for r in record.window if r[1] != "=="), None) if record is not None else None
    if row is None or not row[5].startswith("</think>") or row[3].startswith("</think>"):
        return None
    why = "the trace shows `</think>` in the prompt where the live state goes on reasoning"
    return Trigger("reasoning-retokenised", why, "trace")


def _by_finish(episode: Episode) -> Trigger:
    before = episode.previous
    left_out = (episode.prompt or 0) < (episode.live or 0)
    grade = "turns" if before is not None and before.how == "slot" else "possible"
    others = () if before is not None else ("tail-mismatch-no-rewind",)
    if left_out or (before is not None and before.finish == "stop"):
        why = "the prompt parts from the live state where the last reply begins"
        return Trigger("reasoning-retokenised", why, grade, (*others, "tool-bytes-retokenised"))
    why = "the tool call came back in other tokens than were sampled"
    return Trigger("tool-bytes-retokenised", why, grade, (*others, "reasoning-retokenised"))


def _transient(episode: Episode, setting: Setting) -> Trigger | None:
    if id(episode) in setting.repeated_distance:
        return Trigger("client-transient-tail", "C lies the same distance below P' turn after turn", "turns")
    return None


def _early(episode: Episode, setting: Setting) -> Trigger | None:
    limits = setting.view.limits
    live, prompt, common = episode.live, episode.prompt, episode.common
    if live is None or prompt is None or common is None:
        return None
    if common < min(live, prompt) * limits.early_share and prompt >= limits.grown_share * live:
        return Trigger(
            "client-early-edit",
            "the conversation went on, but a block near its start changed",
            alternatives=("client-history-rewrite",),
        )
    end = instructions_end(setting.view)
    if _traced(episode, setting) and common < end:
        return Trigger(
            "client-early-edit",
            f"the trace shows the first mismatch inside the instructions, which end at {end}",
            "trace",
        )
    if _fresh_session(episode, setting):
        return Trigger(
            "client-early-edit",
            "a fresh session of the same length parts inside the instructions",
            "possible",
            ("tail-mismatch-no-rewind",),
        )
    return None


def _traced(episode: Episode, setting: Setting) -> bool:
    """A `--trace` record shows where live state and prompt part."""
    record = setting.view.reading.trace.get(episode.request.request)
    return record is not None and record.mismatch_first is not None


def _fresh_session(episode: Episode, setting: Setting) -> bool:
    """Another episode has the same P and reads the same file: sessions with one head, not one conversation."""
    prompt, hit, limits = episode.prompt or 0, episode.depth, setting.view.limits
    common = episode.common or 0
    if not hit or common - hit < max(limits.shallow_tokens, common * limits.shallow_share):
        return False
    if episode.previous is not None and episode.previous.how == "slot":
        return False  # the turn before is known: one conversation that goes on
    return any(
        e is not episode and e.depth == hit and abs((e.prompt or 0) - prompt) <= 2
        for e in setting.view.misses
    )


def _tail(episode: Episode, setting: Setting) -> Trigger | None:
    limits, common = setting.view.limits, episode.common or 0
    if common < limits.tail_share * (episode.prompt or 1):
        return None
    depth = episode.depth
    cheap = depth is not None and common - depth < max(limits.shallow_tokens, common * limits.shallow_share)
    return Trigger(
        "tail-mismatch-no-rewind", f"{100 * common / (episode.prompt or 1):.1f} % of the prompt was live", cheap=cheap and bool(depth),
        alternatives=("client-history-rewrite",),
    )  # fmt: skip


def _rewrite(episode: Episode, setting: Setting) -> Trigger | None:
    limits, view = setting.view.limits, setting.view
    shorter = (episode.prompt or 0) < limits.grown_share * (episode.live or 0)
    if shorter and (_other_flags(episode) or opens_again(episode, view)):
        return Trigger(
            "unrelated-prompt",
            "another session opens: same length as an earlier first prompt, or other flags",
            "turns",
            ("client-history-rewrite",),
        )
    if shorter or id(episode) in setting.creeping:
        why = "the prompt is shorter than the live state" if shorter else "C creeps forward from miss to miss"
        return Trigger("client-history-rewrite", why, "turns")
    return Trigger(
        "client-history-rewrite",
        "the prompt parts from the live state in the middle",
        "possible",
        ("client-early-edit",),
    )


def _silent(episode: Episode, setting: Setting) -> Trigger | None:
    """Before the miss line existed: evict store, hit and `prompt start` in one second are the miss."""
    if episode.evict_store is None or (episode.start or 0) >= (episode.live or 0):
        return None
    if id(episode) in setting.turning:
        return _taking_turns(episode, setting.turning[id(episode)], setting)
    before, live, prompt = episode.previous, episode.live or 0, episode.prompt or 0
    if before is None or prompt < before.prompt or before.finish is None:
        return None
    if before.finish == "stop" or prompt < live:
        return Trigger(
            "reasoning-retokenised",
            "after finish=stop the next prompt did not continue the live state",
            "possible",
            ("tail-mismatch-no-rewind", "tool-bytes-retokenised"),
        )
    return Trigger(
        "tool-bytes-retokenised",
        "after a tool call the next prompt did not continue the live state",
        "possible",
        ("reasoning-retokenised",),
    )


_Rule = Callable[[Episode, Setting], "Trigger | None"]
_RULES: Final[tuple[_Rule, ...]] = (
    _invalid, _retry, _small, _head_only, _forced, _turn_taking, _images, _reply, _transient, _early, _tail, _rewrite,
)  # fmt: skip
_SILENT_RULES: Final[tuple[_Rule, ...]] = (_silent,)
