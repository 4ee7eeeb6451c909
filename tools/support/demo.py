"""The demo (tools/demo builds and calls it): agents that switch on two slots, with a cache and without, turn by turn.

Two servers run, and only one of them works at a time: each request goes to the server with the cache first, and, once
that has nothing left to do, to a server that has none and reads every prompt from its beginning. The answers of the
second are what a conversation that was never parked answers.
"""

import argparse
import os
import re
import shutil
import signal
import sys
import time

import agents
import strata_process
import ttft_chart

RAM_BUDGET_MIB = 16  # two of the five conversations, and a little more
ANSWER_TOKENS = 16
CONTROL_LIMIT_TOKENS = 64  # template and luck; a control that reuses more found what it must not find
MIN_PROMPT_TOKENS = 3000
MIB = 1024 * 1024
WROTE = re.compile(r"conversation disk: wrote \d+ tokens, ([\d.]+) MiB .*image=([\d.]+) MiB")


class Row:
    """One turn, with both answers."""

    def __init__(self, phase, agent, cached, uncached, control):
        self.phase, self.agent, self.control = phase, agent, control
        self.cached, self.uncached = cached, uncached

    @property
    def prompt(self):
        return self.cached.usage["prompt_tokens"]

    @property
    def tier(self):
        return self.cached.tier if self.cached.reused else "none"

    @property
    def equal(self):
        return self.cached.content == self.uncached.content

    @property
    def saved_s(self):
        return self.uncached.first_token_s - self.cached.first_token_s


class Table:
    """Rows as they happen. Colours only on a terminal."""

    COLUMNS = (("turn", 4, ">"), ("who", 14, "<"), ("prompt", 7, ">"), ("reused", 7, ">"), ("from", 5, "<"),
               ("why the rest was read", 22, "<"), ("first token", 11, ">"), ("cache off", 10, ">"), ("answer", 7, "<"))
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
        line = self._line([name for name, _, _ in self.COLUMNS])
        self.say(self._paint(line, "1"))

    def row(self, row):
        self._turn += 1
        values = (self._turn, row.agent, row.prompt, row.cached.reused, row.tier, row.cached.reason,
                  f"{row.cached.first_token_s:.2f} s", f"{row.uncached.first_token_s:.2f} s",
                  "equal" if row.equal else "DIFFERS")
        self.say(self._paint(self._line(values), self.TIER_COLOUR.get(row.tier, "0") if row.equal else "31"))

    def note(self, text):
        self.say(self._paint(f"-- {text}", "1"))

    def say(self, text):
        print(text, file=self._out, flush=True)


class Demo:
    def __init__(self, options, table):
        self.options, self.table = options, table
        self.folder = os.path.join(options.out, "conversations")
        self.rows = []
        self.written_bytes = 0
        self.whole_bytes = 0
        self.agents = {name: agents.Agent(name) for name in ("main", "sub-agent A", "sub-agent B", "sub-agent C", "sub-agent D")}

    def cached_server(self):
        return strata_process.Server(self.options.strata, [
            *self._model(), "--conversation-cache-mib", RAM_BUDGET_MIB, "--conversation-cache-min-free-mib", 256,
            "--conversation-disk-dir", self.folder, "--conversation-disk-persist",
            "--conversation-disk-min-free-mib", 64])

    def uncached_server(self):
        return strata_process.Server(self.options.strata, [*self._model(), "--conversation-cache-mib", 0])

    def _model(self):
        return ["--model", "reference", "--slots", 2, "--model-option", f"layout={self.options.layout}",
                "--model-option", f"stages={self.options.stages}"]

    # -- turns ----------------------------------------------------------------------------------------------------------

    def turn(self, phase, agent, control=False):
        request = agent.request(ANSWER_TOKENS)
        cached = self.server.complete("/v1/chat/completions", request)
        self.server.wait_until_written()  # so that the other server has the machine for itself
        uncached = self.reference.complete("/v1/chat/completions", {**request, "cache_prompt": False})
        agent.hear(uncached.text)
        row = Row(phase, agent.name, cached, uncached, control)
        self.rows.append(row)
        self.table.row(row)

    def ask(self, phase, name, *texts):
        self.agents[name].ask(*texts)
        self.turn(phase, self.agents[name])

    def before_restart(self):
        ask = lambda *rest: self.ask("first run", *rest)
        ask("main", "Which parts does the tier stack have, and who owns the buffers?", agents.excerpt("tiers/tier_stack.hpp", 1300))
        ask("sub-agent A", "Task: find out how lines are encoded.", agents.excerpt("core/lines.hpp", 1300))
        ask("sub-agent B", "Task: find out what a manifest refuses.", agents.excerpt("core/manifest.hpp", 1300))
        ask("main", "What did the sub-agents leave open?", agents.excerpt("core/limits.hpp", 400))
        ask("sub-agent C", "Task: find out which reasons there are.", agents.excerpt("core/reasons.hpp", 1300))
        ask("sub-agent D", "Task: find out how a file is opened.", agents.excerpt("core/file_system.hpp", 1300))
        ask("main", "Compare the two reports.", agents.excerpt("core/limits.hpp", 400, 400))
        ask("sub-agent A", "And how is a line decoded?", agents.excerpt("core/lines.hpp", 300, 1300))
        ask("sub-agent B", "And what does a start read of it?", agents.excerpt("core/manifest.hpp", 300, 1300))
        control = agents.Agent("control", "Request 4711. " + agents.RULES)
        control.ask("Task: find out how lines are encoded.", agents.excerpt("core/lines.hpp", 1300))
        self.turn("first run", control, control=True)

    def after_restart(self):
        ask = lambda *rest: self.ask("after the restart", *rest)
        ask("main", "Go on after the restart.", agents.excerpt("core/limits.hpp", 300, 800))
        ask("sub-agent C", "Go on: what is skipped?", agents.excerpt("core/reasons.hpp", 300, 1300))
        ask("sub-agent D", "Go on: what is locked?", agents.excerpt("core/file_system.hpp", 300, 1300))
        ask("sub-agent A", "Go on: what is refused?", agents.excerpt("core/lines.hpp", 300, 1600))

    # -- the run --------------------------------------------------------------------------------------------------------

    def run(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.options.out, exist_ok=True)
        with self.uncached_server() as self.reference:
            self.server = self.cached_server().start()
            try:
                self.table.note(f"two slots, {RAM_BUDGET_MIB} MiB of RAM for parked conversations, the rest on disk")
                self.table.head()
                self.before_restart()
                self.stop_and_show()
                self.server = self.cached_server().start()
                self.show_line("conversation disk: took in")
                self.after_restart()
                self.stop_and_show()
            finally:
                self.server.kill()

    def stop_and_show(self):
        self.written_bytes += self.server.metric("strata_disk_written_bytes_total")
        self.whole_bytes += self.server.metric("strata_disk_image_bytes_total")
        before = len(self.server.output.lines)
        started = time.monotonic()
        status = self.server.stop(signal.SIGTERM)
        self.table.note(f"SIGTERM: the server ended with status {status} after {time.monotonic() - started:.2f} s")
        for line in self.server.output.lines[before:]:
            self.table.say(f"   {line}")
            if match := WROTE.search(line):  # after the last look at the metrics
                self.written_bytes += float(match.group(1)) * MIB
                self.whole_bytes += float(match.group(2)) * MIB
        if status != 0:
            raise strata_process.Died(f"the server ended with status {status} at SIGTERM")

    def show_line(self, text):
        _, line = self.server.output.wait_for(lambda said: text in said and said, 30)
        self.table.note(line.removeprefix("strata: "))


def faults(rows):
    """What must not be, in words; empty when all is well."""
    found = []
    known = {}  # tokens of each agent's last prompt: no turn may read them again
    for number, row in enumerate(rows, 1):
        if not row.equal:
            found.append(f"turn {number} ({row.agent}): the answer differs from that of the run without a cache:\n"
                         f"    with:    {row.cached.text!r}\n    without: {row.uncached.text!r}")
        if row.prompt < MIN_PROMPT_TOKENS:
            found.append(f"turn {number}: a prompt of {row.prompt} tokens shows little")
        if row.uncached.reused:
            found.append(f"turn {number}: the server without a cache reused {row.uncached.reused} tokens")
        if row.control and row.cached.reused > CONTROL_LIMIT_TOKENS:
            found.append(f"turn {number}: the control reused {row.cached.reused} tokens of another prefix")
        if row.cached.reused < known.get(row.agent, 0):
            found.append(f"turn {number} ({row.agent}): {row.cached.reused} of {known[row.agent]} known tokens were reused, "
                         f"because {row.cached.reason}")
        known[row.agent] = row.prompt
    for tier, where in (("ram", rows), ("disk", [r for r in rows if r.phase == "first run"]),
                        ("disk", [r for r in rows if r.phase == "after the restart"])):
        if not any(row.tier == tier for row in where):
            found.append(f"no turn of the {'whole run' if where is rows else where[0].phase} came from {tier}")
    return found


def closing_line(demo):
    tokens = sum(row.cached.reused for row in demo.rows)
    seconds = sum(row.saved_s for row in demo.rows)
    return (f"saved: {tokens:,} tokens not read again, {seconds:.1f} s of waiting for first tokens; disk: "
            f"{demo.written_bytes / MIB:.1f} MiB written, whole images would have been {demo.whole_bytes / MIB:.1f} MiB")


def parse(arguments):
    parser = argparse.ArgumentParser(prog="tools/demo", description=__doc__.splitlines()[0])
    parser.add_argument("--strata", required=True, help="the built program")
    parser.add_argument("--out", required=True, help="folder for the conversations and the picture")
    parser.add_argument("--layout", default="attention", choices=("attention", "sliding", "hybrid"))
    parser.add_argument("--stages", default=1, type=int, choices=(1, 2))
    return parser.parse_args(arguments)


def main():
    options = parse(sys.argv[1:])
    table = Table(sys.stdout)
    demo = Demo(options, table)
    started = time.monotonic()
    try:
        demo.run()
    except (strata_process.Died, AssertionError, OSError) as error:
        print(f"tools/demo: {error}", file=sys.stderr)
        return 1
    picture = os.path.join(options.out, "ttft.svg")
    with open(picture, "w", encoding="utf-8") as file:
        file.write(ttft_chart.svg([(row.agent, row.tier, row.cached.first_token_s, row.uncached.first_token_s)
                                   for row in demo.rows], "Time to first token, with the cache and without"))
    table.note(f"{len(demo.rows)} turns in {time.monotonic() - started:.0f} s; picture: {os.path.relpath(picture)}")
    found = faults(demo.rows)
    for fault in found:
        print(f"tools/demo: {fault}", file=sys.stderr)
    table.say(closing_line(demo))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
