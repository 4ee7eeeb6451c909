"""What the integration tests share: the built program, a model that is small and quick, folders on a real file system,
servers that are ended with the test, and conversations whose every answer is compared with a server that has no cache."""

import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tools", "support"))

import strata_process  # noqa: E402  (found through the line above)

BINARY = os.environ.get("STRATA_BINARY", os.path.join(ROOT, "build", "dev", "engine", "cli", "strata"))
FOLDERS = os.environ.get("STRATA_TEST_FOLDER", os.path.join(ROOT, "build", "dev", "tests", "integration", "folders"))

# 1 KiB of state a token, in blocks of 32 tokens: 2 MiB of RAM hold four conversations of 500 tokens. The wide inner layer
# makes reading a token cost what it costs in a real model: more than bringing its state back from a disk.
TINY_MODEL = {"layers": 2, "dim": 64, "heads": 4, "kv_heads": 4, "ffn": 4096, "tokens_per_block": 32, "window": 48,
              "threads": 1}
CONTEXT = 2048
SLOTS = 2


def model_options(layout="attention", stages=1, context=CONTEXT, slots=SLOTS, **more):
    model = {**TINY_MODEL, "layout": layout, "stages": stages, **more}
    model["layers"] *= stages
    options = ["--model", "reference", "--slots", slots, "--context", context]
    for key, value in model.items():
        options += ["--model-option", f"{key}={value}"]
    return options


def cache_options(folder=None, ram_mib=2, persist=True, disk_floor_mib=16, **more):
    """Floors are low, so that a small machine parks too."""
    options = ["--conversation-cache-mib", ram_mib, "--conversation-cache-min-free-mib", 64]
    if folder:
        options += ["--conversation-disk-dir", folder, "--conversation-disk-min-free-mib", disk_floor_mib]
        if persist:
            options.append("--conversation-disk-persist")
    for name, value in more.items():
        options += ["--" + name.replace("_", "-"), value]
    return options


def words(seed, size):
    """Readable text of exactly `size` bytes; another seed, another text from its first word on."""
    source = random.Random(seed)
    text = f"{source.getrandbits(32):08x} "
    while len(text) < size:
        text += "".join(source.choice("abcdefghijklmnoprstuvwz") for _ in range(source.randint(2, 9))) + " "
    return text[:size]


class Conversation:
    """Chat messages that grow; asked at a server with a cache and at one without."""

    def __init__(self, name, size=400, system=None):
        """Without a system prompt of its own it shares a handful of tokens with others, and nothing worth a transfer."""
        self.name = name
        self._size = size
        self._turn = 0
        self.messages = [{"role": "system", "content": system or f"{words(name, 12)} is your name."}]

    def next_request(self, **keys):
        size = self._size if self._turn == 0 else 60
        self.messages.append({"role": "user", "content": words(f"{self.name}/{self._turn}", size)})
        self._turn += 1
        return {"messages": self.messages, "max_tokens": 6, "temperature": 0, "logprobs": True, "top_logprobs": 2, **keys}

    def hear(self, answer):
        self.messages.append({"role": "assistant", "content": answer.text})


class StrataTest(unittest.TestCase):
    maxDiff = None

    def folder(self):
        """A new folder, on the file system of the build."""
        os.makedirs(FOLDERS, exist_ok=True)
        path = tempfile.mkdtemp(prefix=self.id().rsplit(".", 1)[-1][:40] + ".", dir=FOLDERS)
        self.addCleanup(shutil.rmtree, path, ignore_errors=True)
        return path

    def server(self, *options, **keys):
        server = strata_process.Server(BINARY, [o for group in options for o in group], **keys).start()
        self.addCleanup(server.kill)
        return server

    def run_strata(self, *arguments, seconds=60):
        """(exit status, stdout, stderr) of a command that ends by itself."""
        done = subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=seconds,
                              stdin=subprocess.DEVNULL, check=False)
        self.assertGreaterEqual(done.returncode, 0, f"ended by signal {-done.returncode}: {done.stderr}")
        return done.returncode, done.stdout, done.stderr

    def compare(self, cached, uncached, conversation, **keys):
        """One turn on both servers; equal answers, token bytes and log probabilities. Returns the cached one."""
        request = conversation.next_request(**keys)
        with_cache = cached.complete("/v1/chat/completions", request)
        cached.wait_until_written()  # a disk that is behind may drop what it has not written; that is another test's subject
        without = uncached.complete("/v1/chat/completions", {**request, "cache_prompt": False})
        self.assertEqual(without.reused, 0, "the server without a cache reused something")
        self.assertTrue(without.logprobs or not request["logprobs"], "nothing to compare")
        self.assertEqual(with_cache.content, without.content, f"{conversation.name}: {with_cache.timings}")
        conversation.hear(with_cache)
        return with_cache

    def assert_says(self, server, pattern):
        """A line of a running server; what it has said may still be on its way."""
        try:
            server.output.wait_for(re.compile(pattern).search, 30)
        except strata_process.Died as error:
            self.fail(f"nothing like {pattern}: {error}")

    def ask_good(self, server):
        """The server still answers."""
        answer = server.chat([{"role": "user", "content": "hello"}], max_tokens=2, temperature=0)
        self.assertIn(answer.finish, ("length", "stop"))


def files_in(folder, extension):
    return sorted(name for name in os.listdir(folder) if name.endswith(extension))


def main():
    """Exit status 77 when every test was skipped (a whole class counts as one that did not run), so that ctest says so."""
    program = unittest.main(verbosity=2, exit=False)
    result = program.result
    if result.wasSuccessful() and result.skipped and len(result.skipped) >= result.testsRun:
        sys.exit(77)
    sys.exit(0 if result.wasSuccessful() and result.testsRun else 1)
