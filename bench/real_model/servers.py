"""The two servers that are compared, on the same file with the same number of threads and slots."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tools", "support"))

import demo_models  # noqa: E402  (found through the line above)
import strata_process  # noqa: E402

START_DEADLINE_S = 120


def strata_binary():
    return os.path.join(ROOT, "build", "release", "engine", "cli", "strata")


def llama_server_binary():
    """Where tools/install_deps llama-server puts it; a path that does not exist when it is not there."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.path.join(cache, "strata")
    names = sorted(n for n in os.listdir(folder) if n.startswith("llama-")) if os.path.isdir(folder) else []
    return os.path.join(folder, names[-1] if names else "llama", "bin", "llama-server")


def default_model():
    return demo_models.smollm2_file()


def processor_s(pid):
    """What a process and its children have used of the processors so far, in seconds."""
    ticks = 0
    for each in (pid, *strata_process.children_of(pid)):
        with open(f"/proc/{each}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])  # in user and in system mode
    return ticks / os.sysconf("SC_CLK_TCK")


def strata(options, slots, ram_mib, folder=None):
    arguments = ["--model", options.model, "--slots", slots, "--context", options.context, "--model-option",
                 f"threads={options.threads}", "--conversation-cache-mib", ram_mib, "--conversation-cache-min-free-mib", 256]
    if folder:
        arguments += ["--conversation-disk-dir", folder, "--conversation-disk-persist"]
    return strata_process.Server(options.strata, arguments)


class LlamaServer:
    """llama.cpp's own server. A context manager; its output goes to a file, which is named when it does not start."""

    def __init__(self, options, slots, ram_mib):
        self.log = os.path.join(options.work, "llama-server.log")
        self._command = [options.llama_server, "-m", options.model, "-c", str(options.context * slots), "-np", str(slots),
                         "-t", str(options.threads), "-tb", str(options.threads), "--host", "127.0.0.1", "--cache-ram",
                         str(ram_mib), "--no-ui"]
        self.process = None
        self.port = None

    def __enter__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([*self._command, "--port", str(self.port)], stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, start_new_session=True)
        try:
            self._wait_until_healthy()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def _wait_until_healthy(self):
        deadline = time.monotonic() + START_DEADLINE_S
        while not self._healthy():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise strata_process.Died(f"llama-server did not start; see {self.log}")
            time.sleep(0.05)

    def _healthy(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
