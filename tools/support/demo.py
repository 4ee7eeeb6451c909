"""The demo (tools/demo builds and calls it): agents that switch on two slots, with a cache and without, turn by turn.

Two servers run, and only one of them works at a time: each request goes to the server with the cache first, and, once
that has nothing left to do, to a server that has none and reads every prompt from its beginning. The answers of the
second are what a conversation that was never parked answers.
"""

import argparse
import collections
import os
import re
import shutil
import signal
import sys
import time

import agents
import answer_comparison
import demo_models
import demo_table
import strata_process
import ttft_chart

MIB = 1024 * 1024
WROTE = re.compile(r"conversation disk: wrote \d+ tokens, ([\d.]+) MiB .*image=([\d.]+) MiB")


class Demo:
    def __init__(self, strata, out, model, table):
        self.strata, self.out, self.model, self.table = strata, out, model, table
        self.folder = os.path.join(out, "conversations")
        self.rows = []
        self.written_bytes = 0
        self.whole_bytes = 0
        self.agents = {}

    def cached_server(self):
        return strata_process.Server(self.strata, [
            *self.model.server_options(), "--slots", 2, "--conversation-cache-mib", self.model.ram_mib,
            "--conversation-cache-min-free-mib", 256, "--conversation-disk-dir", self.folder, "--conversation-disk-persist",
            "--conversation-disk-min-free-mib", 64])

    def uncached_server(self):
        return strata_process.Server(self.strata, [*self.model.server_options(), "--slots", 1, "--conversation-cache-mib", 0])

    # -- turns ----------------------------------------------------------------------------------------------------------

    def request(self, agent):
        request = agent.request(self.model.answer_tokens)
        if self.model.tolerance is not None:
            request.update(logprobs=True, top_logprobs=answer_comparison.TOP)
        return request

    def compare(self, cached, uncached):
        if self.model.tolerance is None:
            return answer_comparison.exact(cached, uncached)
        return answer_comparison.with_tolerance(cached, uncached, self.model.tolerance)

    def ask(self, phase, agent, control=False):
        request = self.request(agent)
        cached = self.server.complete("/v1/chat/completions", request)
        self.server.wait_until_written()  # so that the other server has the machine for itself
        uncached = self.reference.complete("/v1/chat/completions", {**request, "cache_prompt": False})
        agent.hear(cached.text)
        row = demo_table.Row(phase, agent.name, cached, uncached, control, self.compare(cached, uncached))
        self.rows.append(row)
        self.table.row(row)
        if self.model.shows_answers:
            self.table.answer(cached.text)

    def turns(self, phase, turns):
        for turn in turns:
            agent = self.agents.setdefault(turn.who, agents.Agent(turn.who, system_bytes=self.model.system_bytes))
            text = [agents.excerpt(turn.path, turn.size, turn.start)] if turn.path else []
            agent.ask(turn.question, *text)
            self.ask(phase, agent)

    def control(self):
        """The same task under another first line: nothing may be found for it."""
        agent = agents.Agent("control", "Request 4711. " + agents.RULES, self.model.system_bytes)
        agent.ask(self.model.control.question, agents.excerpt(self.model.control.path, self.model.control.size))
        self.ask("first run", agent, control=True)

    # -- the run --------------------------------------------------------------------------------------------------------

    def run(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.out, exist_ok=True)
        with self.uncached_server() as self.reference:
            self.server = self.cached_server().start()
            try:
                self.table.note(f"two slots, {self.model.ram_mib} MiB of RAM for parked conversations, the rest on disk")
                self.table.head()
                self.turns("first run", self.model.first_run)
                self.control()
                self.stop_and_show()
                self.server = self.cached_server().start()
                self.show_line("conversation disk: took in")
                self.turns("after the restart", self.model.after_restart)
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

    # -- the end --------------------------------------------------------------------------------------------------------

    def draw(self):
        picture = os.path.join(self.out, "ttft.svg")
        with open(picture, "w", encoding="utf-8") as file:
            file.write(ttft_chart.svg([(row.agent, row.tier, row.cached.first_token_s, row.uncached.first_token_s)
                                       for row in self.rows], "Time to first token, with the cache and without"))
        return picture

    def told_apart(self):
        return answer_comparison.told_apart([(row.cached, row.uncached) for row in self.rows], self.compare)

    def faults(self):
        found = demo_table.faults(self.rows, self.model.min_prompt_tokens, self.model.allowed_share)
        apart, total = self.told_apart()
        if apart < 0.75 * total:
            found.append(f"the comparison tells only {apart} of {total} answers from that of another turn")
        return found

    def sum_up(self):
        tokens = sum(row.cached.reused for row in self.rows)
        seconds = sum(row.saved_s for row in self.rows)
        for line in demo_table.speedups(self.rows, self.model.wanted):
            self.table.say(line)
        if self.model.tolerance is not None:
            apart, total = self.told_apart()
            kinds = collections.Counter(row.verdict.kind for row in self.rows)
            self.table.say(f"answers: {kinds[answer_comparison.EQUAL]} equal, {kinds[answer_comparison.TIE]} part at a tie, "
                           f"{kinds[answer_comparison.DIFFERS]} differ; log probabilities of equal tokens were at most "
                           f"{max(row.verdict.largest for row in self.rows):.2f} apart; compared with the answer of another "
                           f"turn, {apart} of {total} differ")
        self.table.say(f"saved: {tokens:,} tokens not read again, {seconds:.1f} s of waiting for first tokens; disk: "
                       f"{self.written_bytes / MIB:.1f} MiB written, whole images would have been "
                       f"{self.whole_bytes / MIB:.1f} MiB")


def parse(arguments):
    parser = argparse.ArgumentParser(prog="tools/demo", description=__doc__.splitlines()[0])
    parser.add_argument("--strata", required=True, help="the built program")
    parser.add_argument("--out", required=True, help="folder for the conversations and the picture")
    parser.add_argument("--model", default="embedded", choices=("embedded", "smollm2"))
    parser.add_argument("--layout", choices=("attention", "sliding", "hybrid"), help="of the embedded model")
    parser.add_argument("--stages", type=int, choices=(1, 2), help="of the embedded model")
    options = parser.parse_args(arguments)
    if options.model != "embedded" and (options.layout or options.stages):
        parser.error("--layout and --stages belong to --model embedded")
    return options


def model_of(options):
    if options.model == "embedded":
        return demo_models.Embedded(options.layout or "attention", options.stages or 1)
    file = demo_models.smollm2_file()
    if file is None:
        raise strata_process.Died("SmolLM2 is not there: run tools/install_deps smollm2")
    return demo_models.SmolLM2(file)


def main():
    options = parse(sys.argv[1:])
    table = demo_table.Table(sys.stdout)
    started = time.monotonic()
    try:
        model = model_of(options)
        table.note(f"model: {model.title}")
        table.say(model.comparison.format(tolerance=model.tolerance))
        demo = Demo(options.strata, options.out, model, table)
        demo.run()
    except (strata_process.Died, AssertionError, OSError) as error:
        print(f"tools/demo: {error}", file=sys.stderr)
        return 1
    picture = demo.draw()
    table.note(f"{len(demo.rows)} turns in {time.monotonic() - started:.0f} s; picture: {os.path.relpath(picture)}")
    found = demo.faults()
    for fault in found:
        print(f"tools/demo: {fault}", file=sys.stderr)
    demo.sum_up()
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
