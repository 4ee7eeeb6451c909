"""The demo's rows, as a table that grows and as the judgement of the whole."""

import os
import statistics

import answer_comparison

CONTROL_LIMIT_TOKENS = 64  # template and luck; a control that reuses more found what it must not find
SHORT_READ_TOKENS = 64  # a turn that reads more has new text: that takes the same time with and without a cache


class Row:
    """One turn, with both answers."""

    def __init__(self, phase, agent, cached, uncached, control, verdict):
        self.phase, self.agent, self.control = phase, agent, control
        self.cached, self.uncached, self.verdict = cached, uncached, verdict

    @property
    def prompt(self):
        return self.cached.usage["prompt_tokens"]

    @property
    def tier(self):
        return self.cached.tier if self.cached.reused else "none"

    @property
    def saved_s(self):
        return self.uncached.first_token_s - self.cached.first_token_s

    @property
    def times_sooner(self):
        return self.uncached.first_token_s / self.cached.first_token_s

    @property
    def only_continues(self):
        return self.prompt - self.cached.reused <= SHORT_READ_TOKENS

    @property
    def verdict_text(self):
        return f"tie@{self.verdict.at}" if self.verdict.kind == answer_comparison.TIE else self.verdict.kind

    @property
    def differs(self):
        return self.verdict.kind == answer_comparison.DIFFERS


class Table:
    """Rows as they happen. Colours only on a terminal."""

    COLUMNS = (("turn", 4, ">"), ("who", 11, "<"), ("prompt", 6, ">"), ("reused", 6, ">"), ("from", 4, "<"),
               ("why the rest was read", 21, "<"), ("first token", 11, ">"), ("cache off", 9, ">"), ("sooner", 6, ">"),
               ("answer", 7, "<"))
    TIER_COLOUR = {"vram": "32", "ram": "32", "disk": "36", "none": "90"}

    def __init__(self, out):
        self._out = out
        self._colours = out.isatty() and "NO_COLOR" not in os.environ
        self._turn = 0

    def _paint(self, text, code):
        return f"\033[{code}m{text}\033[0m" if self._colours else text

    def _line(self, values):
        return "  ".join(f"{value:{align}{width}}" for value, (_, width, align) in zip(values, self.COLUMNS)).rstrip()

    def head(self):
        self.say(self._paint(self._line([name for name, _, _ in self.COLUMNS]), "1"))

    def row(self, row):
        self._turn += 1
        values = (self._turn, row.agent, row.prompt, row.cached.reused, row.tier, row.cached.reason,
                  f"{row.cached.first_token_s:.2f} s", f"{row.uncached.first_token_s:.2f} s", f"{row.times_sooner:.1f}x",
                  row.verdict_text)
        self.say(self._paint(self._line(values), "31" if row.differs else self.TIER_COLOUR.get(row.tier, "0")))

    def answer(self, text):
        words = " ".join(text.split())
        self.say(self._paint(f"      \"{words[:110]}{'...' if len(words) > 110 else ''}\"", "90"))

    def note(self, text):
        self.say(self._paint(f"-- {text}", "1"))

    def say(self, text):
        print(text, file=self._out, flush=True)


def _row_faults(number, row, known, min_prompt_tokens):
    if row.prompt < min_prompt_tokens:
        yield f"turn {number}: a prompt of {row.prompt} tokens shows little"
    if row.uncached.reused:
        yield f"turn {number}: the server without a cache reused {row.uncached.reused} tokens"
    if row.control and row.cached.reused > CONTROL_LIMIT_TOKENS:
        yield f"turn {number}: the control reused {row.cached.reused} tokens of another prefix"
    if row.cached.reused < known:
        yield (f"turn {number} ({row.agent}): {row.cached.reused} of {known} known tokens were reused, "
               f"because {row.cached.reason}")


def _differences(rows, allowed_share):
    """The answers that differ, when they are more than may be."""
    differing = [(number, row) for number, row in enumerate(rows, 1) if row.differs]
    if len(differing) <= allowed_share * len(rows):
        return
    for number, row in differing:
        yield (f"turn {number} ({row.agent}): the answer differs from that of the server without a cache:\n"
               f"    with:    {row.cached.text!r}\n    without: {row.uncached.text!r}")


def faults(rows, min_prompt_tokens, allowed_share=0.0):
    """What must not be, in words; empty when all is well. Times are no faults: a busy machine has slow ones."""
    found = list(_differences(rows, allowed_share))
    known = {}  # tokens of each agent's last prompt: no turn may read them again
    for number, row in enumerate(rows, 1):
        found += _row_faults(number, row, known.get(row.agent, 0), min_prompt_tokens)
        known[row.agent] = row.prompt
    for tier, phase in (("ram", None), ("disk", "first run"), ("disk", "after the restart")):
        if not any(row.tier == tier and phase in (None, row.phase) for row in rows):
            found.append(f"no turn of the {phase or 'whole run'} came from {tier}")
    return found


def _speedup(what, wanted, rows):
    ratios = [row.times_sooner for row in rows]
    if not ratios:
        return f"{what}: no turn"
    return (f"{what}: first token {statistics.median(ratios):.0f} times sooner than reading again "
            f"(least {min(ratios):.0f}, wanted {wanted}; {len(ratios)} turns)")


def speedups(rows, wanted):
    """One line a tier for which `wanted` names a ratio, over the turns that bring little new text."""
    short = [row for row in rows if row.only_continues]
    if "ram" in wanted:
        yield _speedup("from RAM", wanted["ram"], [r for r in short if r.tier == "ram"])
    if "disk" in wanted:
        yield _speedup("from disk after the restart", wanted["disk"],
                       [r for r in short if r.tier == "disk" and r.phase == "after the restart"])
