"""kill -9 of the engine at random moments while it writes (B-6, invariants 1 and 4).

A folder has a seed and several lives. In each life `strata engine` is driven over its line protocol by conversations that
grow, fork and switch, with a RAM budget so small that it spills all the time, with each answer written behind it, or
without a RAM tier, until it is killed: at a random time, or a
random moment after it has queued a write. Then:
  - every conversation that was seen published at any time is still there, itself or as a beginning of a newer one;
  - `strata sessions verify` finds every byte in place;
  - the next start lists all of them;
  - each continues with exactly the tokens and log probabilities of an engine that never parks.
The workload follows from the seed; the exact moment of the kill depends on the machine.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path[:0] = [os.path.join(ROOT, "tools", "support"), os.path.join(ROOT, "tests", "integration")]

import index_file  # noqa: E402
import strata_process  # noqa: E402

KILLS_PER_SEED = 4
CONVERSATIONS = 5
FIRST_TOKENS = (150, 500)
NEW_TOKENS = (10, 120)
MAX_TOKENS = 1500
ANSWER_TOKENS = 3
REWRITTEN = ANSWER_TOKENS + 1  # at the end of a state, where the next turn may replace the answer
CONTEXT = 2048
SECONDS_TO_LIVE = (0.02, 0.9)
SECONDS_AFTER_QUEUED = 0.012
QUEUED = "conversation disk: queued"
ENDED = ("conversation disk: wrote", "conversation disk: dropped", "conversation disk: refused")
CACHES = {  # spilled from RAM, written after each answer, parked straight to the disk
    "evict": ["--conversation-cache-mib", 1, "--conversation-disk-persist"],
    "through": ["--conversation-cache-mib", 4, "--conversation-disk-persist", "--disk-write-policy", "through"],
    "disk mode": ["--conversation-cache-disk-mib", 1024],
}
VARIANTS = [(layout, stages) for layout in ("attention", "sliding", "hybrid") for stages in (1, 2)]


def agree(one, other):
    """Number of leading tokens that are equal."""
    return next((n for n, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))


class Wrong(Exception):
    """What the crash promise forbids."""


def engine_options(layout, stages):
    model = {"layout": layout, "stages": stages, "layers": 2 * stages, "dim": 64, "heads": 4, "kv_heads": 4, "ffn": 1024,
             "tokens_per_block": 32, "window": 48, "threads": 1}
    options = ["--model", "reference", "--slots", 2, "--context", CONTEXT]
    for key, value in model.items():
        options += ["--model-option", f"{key}={value}"]
    return options


class Reference:
    """The same model without any cache: what a conversation answers that was never parked. Remembers its answers."""

    def __init__(self, binary):
        self._binary = binary
        self._engines = {}
        self._answers = {}

    def answer(self, variant, tokens):
        key = (variant, tuple(tokens))
        if key not in self._answers:
            if variant not in self._engines:
                options = [*engine_options(*variant), "--conversation-cache-mib", 0]
                self._engines[variant] = strata_process.Engine(self._binary, options).start()
            result = self._engines[variant].generate(tokens, ANSWER_TOKENS, logprobs=2, cache=0)
            if result.error or result.reused:
                raise Wrong(f"the engine without a cache: {result.error or 'reused something'}")
            self._answers[key] = result.content
        return self._answers[key]

    def close(self):
        for engine in self._engines.values():
            engine.kill()


class Killer:
    """Ends one engine by SIGKILL at a moment that the seed chooses."""

    def __init__(self, source, engine):
        self._process = engine.process
        self._done = threading.Event()
        if source.random() < 0.25:
            self._wait = lambda: self._done.wait(source_time)
            source_time = source.uniform(*SECONDS_TO_LIVE)
            self.plan = f"after {source_time * 1000:.0f} ms"
        else:
            number, delay = source.randint(1, 6), source.uniform(0, SECONDS_AFTER_QUEUED)
            self._wait = lambda: self._wait_for_queued(engine, number, delay)
            self.plan = f"{delay * 1000:.2f} ms after queued write {number}"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _wait_for_queued(self, engine, number, delay):
        index = -1
        deadline = time.monotonic() + SECONDS_TO_LIVE[1] * 2
        try:
            for _ in range(number):
                remaining = max(0.0, deadline - time.monotonic())
                index, _ = engine.log.wait_for(lambda line: QUEUED in line, remaining, index + 1)
        except strata_process.Died:
            return  # it wrote less than that; killed now
        end = time.perf_counter() + delay
        while time.perf_counter() < end:
            pass

    def _run(self):
        self._wait()
        if self._process.poll() is None:
            self._process.kill()

    def join(self):
        self._done.set()
        self._thread.join()


class Life:
    """One folder with its seed, over several kills."""

    def __init__(self, binary, folder, seed, reference):
        self.binary, self.folder, self.seed, self.reference = binary, folder, seed, reference
        self.source = random.Random(seed)
        self.variant = VARIANTS[seed % len(VARIANTS)]
        self.cache = list(CACHES)[(seed + seed // len(VARIANTS)) % len(CACHES)]
        self.conversations = [self.new_tokens(*FIRST_TOKENS) for _ in range(CONVERSATIONS)]
        self.seen = {}
        self.log = []
        self.restored = self.read_again = self.interrupted = 0

    def new_tokens(self, low, high):
        return [self.source.randrange(256) for _ in range(self.source.randint(low, high))]

    def start(self):
        options = [*engine_options(*self.variant), *CACHES[self.cache], "--conversation-cache-min-free-mib", 64,
                   "--conversation-disk-dir", self.folder, "--conversation-disk-min-free-mib", 16]
        return strata_process.Engine(self.binary, options).start()

    def compare(self, engine, tokens):
        result = engine.generate(tokens, ANSWER_TOKENS, logprobs=2)
        if result.error:
            raise Wrong(f"a request was refused: {result.error}")
        expected = self.reference.answer(self.variant, tokens)
        if result.content != expected:
            raise Wrong(f"a wrong answer after {result.reused} of {len(tokens)} tokens from {result.tier}:\n"
                        f"  {result.content}\n  instead of\n  {expected}")
        return result

    def note_published(self):
        for identity, index in index_file.published(self.folder).items():
            self.seen[identity, index.generation] = index.tokens

    def work_until_killed(self, engine):
        """Conversations that grow, fork and switch, until the engine is gone."""
        killer = Killer(self.source, engine)
        try:
            while True:
                self.one_turn(engine)
                self.note_published()
        except strata_process.Died:
            pass
        finally:
            killer.join()
            engine.kill()
        self.log += [*engine.log.lines, "--- killed"]
        queued = sum(QUEUED in line for line in engine.log.lines)
        ended = sum(any(word in line for word in ENDED) for line in engine.log.lines)
        self.interrupted += queued > ended
        return killer.plan

    def one_turn(self, engine):
        number = self.source.randrange(len(self.conversations))
        tokens = self.conversations[number]
        if self.source.random() < 0.15:  # a fork: the beginning of an older conversation, and something else
            tokens = tokens[: self.source.randint(len(tokens) // 2, len(tokens))]
        if len(tokens) > MAX_TOKENS:
            tokens = self.new_tokens(*FIRST_TOKENS)
        tokens = tokens + self.new_tokens(*NEW_TOKENS)
        self.conversations[number] = tokens + list(self.compare(engine, tokens).tokens)

    # -- after the kill ---------------------------------------------------------------------------------------------------

    def check_what_is_left(self):
        left = index_file.published(self.folder)
        for (identity, generation), tokens in self.seen.items():
            newer = left.get(identity)
            superseded = newer is not None and newer.generation > generation and agree(newer.tokens, tokens) >= len(tokens) - REWRITTEN
            if not superseded and not any(agree(index.tokens, tokens) == len(tokens) for index in left.values()):
                raise Wrong(f"conversation {identity} of {len(tokens)} tokens, generation {generation}, was published and is gone")
        self.seen = {(identity, index.generation): index.tokens for identity, index in left.items()}
        done = subprocess.run([self.binary, "sessions", "verify", self.folder], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=120, check=False)
        if done.returncode != 0:
            raise Wrong(f"sessions verify: exit status {done.returncode}\n{done.stdout}{done.stderr}")

    def check_next_start(self, engine):
        # An empty one was made in its very first moment: without our magic nothing is removed, and it holds no space.
        leftovers = [entry.name for entry in os.scandir(self.folder) if entry.name.endswith(".tmp") and entry.stat().st_size]
        if leftovers:
            raise Wrong(f"interrupted writes were not removed: {leftovers}")
        published = index_file.published(self.folder)
        listed = {entry["id"] for entry in json.loads(engine.query("SESSIONS", "SESSIONS"))}
        missing = set(published) - listed
        if missing:
            raise Wrong(f"published but not taken in: {sorted(missing)}\n{engine.log.text()}")
        for index in published.values():
            result = self.compare(engine, [*index.tokens, 10])
            if result.reused >= len(index.tokens):
                self.restored += 1
            elif result.done.get("reason") in ("cheaper_to_read",):
                self.read_again += 1
            else:
                raise Wrong(f"{index.id}: {result.reused} of {len(index.tokens)} tokens reused from {result.tier}, "
                            f"because {result.done.get('reason')}\n{engine.log.text()}")

    def run(self, kills):
        plans = []
        for _ in range(kills):
            engine = self.start()
            try:
                self.check_next_start(engine)
                plans.append(self.work_until_killed(engine))
            finally:
                engine.kill()
            self.check_what_is_left()
        engine = self.start()
        try:
            self.check_next_start(engine)
        finally:
            engine.kill()
        return plans


def parse(arguments):
    parser = argparse.ArgumentParser(prog="tools/crash_test", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strata", required=True, help="the built program")
    parser.add_argument("--folder", required=True, help="where the conversation folders are made")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, help="of the first folder; the next ones count on (default: random)")
    return parser.parse_args(arguments)


def run_seed(options, seed, kills, reference):
    folder = os.path.join(options.folder, f"seed-{seed}")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(options.folder, exist_ok=True)
    life = Life(options.strata, folder, seed, reference)
    try:
        plans = life.run(kills)
    except (Wrong, strata_process.Died, ValueError) as error:
        with open(folder + ".log", "w", encoding="utf-8") as log:
            log.write("\n".join(life.log) + "\n")
        print(f"seed {seed}: WRONG ({life.variant[0]}, {life.variant[1]} stages, {life.cache}): {error}\n"
              f"the folder is kept: {folder}, with the engines' log beside it\nagain: tools/crash_test --seed {seed} --kills {KILLS_PER_SEED}", flush=True)
        return None
    shutil.rmtree(folder, ignore_errors=True)
    print(f"seed {seed}: {life.variant[0]}, {life.variant[1]} stages, {life.cache}; killed {', '.join(plans)}; {life.restored} restored, "
          f"{life.read_again} cheaper to read, {life.interrupted} killed while writing", flush=True)
    return life


def main():
    options = parse(sys.argv[1:])
    first = options.seed if options.seed is not None else random.SystemRandom().randrange(10**9)
    reference = Reference(options.strata)
    started, restored, interrupted, done = time.monotonic(), 0, 0, 0
    try:
        for number in range((options.kills + KILLS_PER_SEED - 1) // KILLS_PER_SEED):
            kills = min(KILLS_PER_SEED, options.kills - done)
            life = run_seed(options, first + number, kills, reference)
            if life is None:
                return 1
            done += kills
            restored += life.restored
            interrupted += life.interrupted
    finally:
        reference.close()
    print(f"{done} kills in {time.monotonic() - started:.0f} s: {restored} conversations restored exactly, "
          f"{interrupted} of the kills hit a write, none lost")
    if done >= KILLS_PER_SEED and not (restored and interrupted):
        print("nothing was interrupted or restored: this run shows nothing")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
