"""The two models of the demo: how each is served, what the agents ask, and how its answers are compared.

Sizes differ because the models do. The embedded one has about one token a byte and a state of 4 KiB a token; SmolLM2 has
about a token for three bytes and 22.5 KiB of state a token. With both, the RAM tier holds two of the conversations and a
little more, so that the others come from disk.
"""

import collections
import glob
import os

Turn = collections.namedtuple("Turn", "who question path size start", defaults=(None, 0, 0))
Control = collections.namedtuple("Control", "question path size")


class Embedded:
    name = "embedded"
    title = "the embedded reference model (no weights of a real model: its answers are letters)"
    comparison = ("each answer is compared, letter by letter, with that of a server that has no cache and reads the whole "
                  "prompt")
    ram_mib = 16
    answer_tokens = 16
    min_prompt_tokens = 3000
    system_bytes = 1900
    wanted = {}  # its reading is too quick to promise anything
    tolerance = None  # exact
    allowed_share = 0.0  # of answers that differ
    shows_answers = False
    control = Control("Task: find out how lines are encoded.", "core/lines.hpp", 1300)
    first_run = (
        Turn("main", "Which parts does the tier stack have, and who owns the buffers?", "tiers/tier_stack.hpp", 1300),
        Turn("sub-agent A", "Task: find out how lines are encoded.", "core/lines.hpp", 1300),
        Turn("sub-agent B", "Task: find out what a manifest refuses.", "core/manifest.hpp", 1300),
        Turn("main", "What did the sub-agents leave open?", "core/limits.hpp", 400),
        Turn("sub-agent C", "Task: find out which reasons there are.", "core/reasons.hpp", 1300),
        Turn("sub-agent D", "Task: find out how a file is opened.", "core/file_system.hpp", 1300),
        Turn("main", "Compare the two reports.", "core/limits.hpp", 400, 400),
        Turn("sub-agent A", "And how is a line decoded?", "core/lines.hpp", 300, 1300),
        Turn("sub-agent B", "And what does a start read of it?", "core/manifest.hpp", 300, 1300))
    after_restart = (
        Turn("main", "Go on after the restart.", "core/limits.hpp", 300, 800),
        Turn("sub-agent C", "Go on: what is skipped?", "core/reasons.hpp", 300, 1300),
        Turn("sub-agent D", "Go on: what is locked?", "core/file_system.hpp", 300, 1300),
        Turn("sub-agent A", "Go on: what is refused?", "core/lines.hpp", 300, 1600))

    def __init__(self, layout, stages):
        self._options = ["--model", "reference", "--model-option", f"layout={layout}", "--model-option", f"stages={stages}"]

    def server_options(self):
        return self._options


class SmolLM2:
    name = "smollm2"
    title = "SmolLM2-135M-Instruct through llama.cpp, one thread a server"
    # Seen: servers without any cache differ by as much, when the same prompt lies elsewhere in llama.cpp's cache or is read
    # in other batches; at rare places the probability of a word then moves by a factor of seven.
    comparison = (
        "each answer is compared, token by token, with that of a server that has no cache and reads the whole prompt. This "
        "model's weights and llama.cpp's sums round otherwise in another batch, with a cache and without; so equal means: the "
        "same tokens, log probabilities at most {tolerance} apart. \"tie@N\": at token N two candidates that are no more than "
        "{tolerance} apart on both servers changed places; what follows is not compared. Anything else differs, and more "
        "than a quarter of such answers is an error")
    ram_mib = 112
    answer_tokens = 24
    min_prompt_tokens = 2000
    system_bytes = 3300
    wanted = {"ram": 20, "disk": 10}  # times sooner than reading again
    tolerance = 1.0
    allowed_share = 0.25
    shows_answers = True
    control = Control("Task: find out how lines are encoded.", "core/lines.hpp", 4000)
    first_run = (
        Turn("main", "Which parts does the tier stack have, and who owns the buffers?", "tiers/tier_stack.hpp", 4600),
        Turn("sub-agent A", "Task: find out how lines are encoded.", "core/lines.hpp", 4000),
        Turn("sub-agent B", "Task: find out what a manifest refuses.", "core/manifest.hpp", 4000),
        Turn("main", "What did the sub-agents leave open?"),
        Turn("sub-agent C", "Task: find out what the disk tier keeps.", "tiers/disk_tier.hpp", 4000),
        Turn("sub-agent A", "And how is a line decoded?"),
        Turn("main", "Read this too, and compare it with the first.", "tiers/ram_tier.hpp", 2400),
        Turn("sub-agent C", "And what is removed?"))
    after_restart = (
        Turn("main", "Go on after the restart: what is left to do?"),
        Turn("sub-agent C", "Go on: what is written first?"),
        Turn("sub-agent B", "Go on: what does a start read of it?"),
        Turn("main", "Thank you. What is the next step?"))

    def __init__(self, file):
        self._file = file

    # One thread: only then does llama.cpp add up a restored conversation as it did the stored one (docs/model-llama.md),
    # and on a machine where anything else runs, threads that wait for each other after every layer are slower than one.
    def server_options(self):
        return ["--model", self._file, "--context", 6144, "--model-option", "threads=1"]


def smollm2_file():
    """Where tools/install_deps puts it; None when it is not there."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    found = glob.glob(os.path.join(glob.escape(cache), "strata", "models", "SmolLM2-135M-Instruct.*.gguf"))
    return found[0] if found else None
