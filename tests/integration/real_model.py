"""SmolLM2 behind the built program: a real chat template, real tokens, real calls. Tests that need it are skipped with
the reason where the model or the plugin that runs it is not there (docs/model-llama.md)."""

import os
import unittest

import harness

CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "strata")
SMOLLM2 = os.path.join(CACHE, "models", "SmolLM2-135M-Instruct.Q4_1.gguf")
PLUGIN = os.path.normpath(os.path.join(os.path.dirname(harness.BINARY), "..", "..", "plugins", "strata_model_llama.so"))
SHARED = os.environ.get("STRATA_SHARED", os.path.join(harness.ROOT, "..", "shared"))


def need_plugin():
    if not os.path.exists(PLUGIN):
        raise unittest.SkipTest("the llama plugin is not built: tools/install_deps llama")


def options(slots=2, context=2048, ram_mib=256):
    """One thread: llama.cpp's threads wait for each other by spinning, which a loaded machine punishes."""
    need_plugin()
    if not os.path.exists(SMOLLM2):
        raise unittest.SkipTest(f"no {SMOLLM2}: tools/install_deps models")
    return ["--model", SMOLLM2, "--slots", slots, "--context", context, "--model-option", "threads=1",
            *harness.cache_options(ram_mib=ram_mib)]


def tiny(name):
    """Path of a tiny model of the shared material."""
    need_plugin()
    path = os.path.join(SHARED, "models", f"tiny-{name}.gguf")
    if not os.path.exists(path):
        raise unittest.SkipTest(f"no {path} (STRATA_SHARED names the folder above models)")
    return path


class RealModelTest(harness.StrataTest):
    """`target`: one server for all tests of the class."""

    slots = 2
    context = 2048

    @classmethod
    def setUpClass(cls):
        cls.target = harness.strata_process.Server(harness.BINARY, options(cls.slots, cls.context)).start()
        cls.addClassCleanup(cls.target.kill)
