"""Client packages as they come from the package index, each in a virtual environment of its own in the build folder, and
a server with a scripted engine for what the embedded model cannot do: tool calls. Versions are pinned: what these tests
say, they say of these versions."""

import glob
import importlib
import os
import subprocess
import sys
import unittest
import venv

import harness

INSTALL_DEADLINE_S = 240
VERSIONS = {"openai": "3.57.0", "anthropic": "2.14.0", "mini-swe-agent": "2.4.6", "openai-agents": "0.24.0"}
BUILD = os.path.dirname(os.path.abspath(harness.FOLDERS))
TEST_SERVER = os.environ.get("STRATA_TEST_SERVER", os.path.join(BUILD, "strata_test_server"))
FAKE_ENGINE = os.environ.get("STRATA_FAKE_ENGINE", os.path.join(BUILD, "strata_fake_engine"))


def environment(package):
    """Folder of the virtual environment that holds the package; skips the tests of the caller with the reason when it
    cannot be had."""
    folder = os.path.join(BUILD, "clients", f"{package}-{VERSIONS[package]}")
    if not os.path.exists(os.path.join(folder, "complete")):
        _install(f"{package}=={VERSIONS[package]}", folder)
    return folder


def load(package, module=None):
    """Makes the package's module importable here and returns it, or skips the tests of the caller with the reason."""
    sys.path[:0] = glob.glob(os.path.join(environment(package), "lib", "python*", "site-packages"))
    return importlib.import_module(module or package)


def _install(requirement, folder):
    try:
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([os.path.join(folder, "bin", "python"), "-m", "pip", "install", "--quiet", "--retries", "1", "--timeout",
                        "15", "--disable-pip-version-check", requirement],
                       check=True, capture_output=True, text=True, timeout=INSTALL_DEADLINE_S, stdin=subprocess.DEVNULL)
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout or "no reason given").strip().splitlines()
        raise unittest.SkipTest(f"{requirement} cannot be installed: {lines[-1]}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise unittest.SkipTest(f"{requirement} cannot be installed: {error}") from None
    with open(os.path.join(folder, "complete"), "w", encoding="ascii"):
        pass


class ScriptedServer(harness.strata_process.Server):
    """A server whose model has a chat format, and whose engine says what stands in the last message as @say(text)."""

    def __init__(self, *options):
        super().__init__(TEST_SERVER)
        self.command = [TEST_SERVER, "--chat", "1", *options, "--", FAKE_ENGINE]


class ClientTest(harness.StrataTest):
    """`scripted`: tools and reasoning. `real`: the program with the embedded model, text alone."""

    package = None

    @classmethod
    def setUpClass(cls):
        cls.module = load(cls.package)
        cls.scripted = cls.started(ScriptedServer())
        cls.real = cls.started(harness.strata_process.Server(
            harness.BINARY, [*harness.model_options(), *harness.cache_options(ram_mib=8)]))

    @classmethod
    def started(cls, server):
        server.start()
        cls.addClassCleanup(server.kill)
        return server
