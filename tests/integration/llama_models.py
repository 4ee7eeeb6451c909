"""Real GGUF models for the integration tests: the tiny ones of every kind of state, and those that tools/install_deps models
brings. Tests skip with the reason where the plugin or the files are not there."""

import os
import random
import unittest

import harness

BUILD = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(harness.FOLDERS))))
PLUGIN = os.path.join(BUILD, "plugins", "strata_model_llama.so")
SHARED = os.environ.get("STRATA_SHARED", os.path.join(harness.ROOT, "..", "shared"))
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "strata", "models")

TINY = ("deepseek2", "gemma3", "gpt-oss", "gpt2", "lfm2", "llama", "mamba2", "nemotron_h", "qwen3", "qwen35")
REAL = ("SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-Q4_K_M.gguf")


def _file(path, how):
    if not os.path.exists(PLUGIN):
        raise unittest.SkipTest("the build found no llama.cpp: tools/install_deps llama brings it")
    if not os.path.exists(path):
        raise unittest.SkipTest(f"{os.path.basename(path)} is not there: {how}")
    return path


def tiny(name):
    return _file(os.path.join(SHARED, "models", f"tiny-{name}.gguf"), "STRATA_SHARED names the parent of its folder models")


def real(name):
    return _file(os.path.join(CACHE, name), "tools/install_deps models brings it")


def options(file, slots=1, context=2048, granularity=None, **more):
    """One thread: answers are exact (docs/model-llama.md)."""
    chosen = ["--model", file, "--slots", slots, "--context", context, "--model-option", "threads=1"]
    if granularity:
        chosen += ["--state-granularity", granularity]
    for name, value in more.items():
        chosen += ["--" + name.replace("_", "-"), value]
    return chosen


def tiny_words(seed, tokens):
    """About so many tokens of a tiny model, whose vocabulary is pairs of hexadecimal digits that it joins as it likes."""
    source = random.Random(seed)
    return "".join(f"{source.randrange(16, 122):02x}" for _ in range(tokens * 12 // 5))


def distance(answer, other):
    """Of the log probabilities of two answers, as long as they say the same."""
    most = 0.0
    for a, b in zip(answer.logprobs, other.logprobs):
        if a["token"] != b["token"]:
            break
        most = max(most, abs(a["logprob"] - b["logprob"]))
    return most
