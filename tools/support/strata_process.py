"""Runs the built `strata` and talks to it: HTTP server and engine line protocol.

Shared by tools/demo, tools/crash_test and the integration tests. Python's standard library only; loopback only; every
process is ended by its own id. Waiting is always for an event (a line, an answer, the end of a process), with a
deadline.
"""

import collections
import http.client
import io
import json
import os
import re
import signal
import subprocess
import threading
import time

START_DEADLINE_S = 60
ADDRESS = re.compile(r"http://(?:127\.0\.0\.1|localhost):(\d+)")


class Died(Exception):
    """The process ended, or did not say in time what was waited for. Carries what it said."""


class Output:
    """Lines of a pipe, read by a thread as they come; can be waited for."""

    def __init__(self, pipe, echo=None):
        self.lines = []
        self.ended = False
        self._changed = threading.Condition()
        self._echo = echo
        self._thread = threading.Thread(target=self._read, args=(pipe,), daemon=True)
        self._thread.start()

    def _read(self, pipe):
        with io.BufferedReader(pipe) as buffered:
            for raw in buffered:
                line = raw.decode("utf-8", "replace").rstrip("\n")
                with self._changed:
                    self.lines.append(line)
                    self._changed.notify_all()
                if self._echo:
                    self._echo(line)
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def wait_for(self, found, seconds, start=0):
        """(index, found(line)) of the first line from `start` on for which found() is true."""
        deadline = time.monotonic() + seconds
        index = start
        with self._changed:
            while True:
                while index < len(self.lines):
                    result = found(self.lines[index])
                    if result:
                        return index, result
                    index += 1
                remaining = deadline - time.monotonic()
                if self.ended or remaining <= 0:
                    why = "ended" if self.ended else f"said nothing of it in {seconds} s"
                    raise Died(why + "; its last lines:\n  " + "\n  ".join(self.lines[-20:]))
                self._changed.wait(remaining)

    def join(self):
        self._thread.join()

    def text(self):
        with self._changed:
            return "\n".join(self.lines)


def children_of(pid):
    """Process ids of the children, from /proc."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


Response = collections.namedtuple("Response", "status headers body")


class Answer:
    """One completion, streamed or not, in the parts that are compared and shown."""

    def __init__(self):
        self.text = ""
        self.finish = None
        self.usage = {}
        self.timings = {}
        self.logprobs = []
        self.first_token_s = None
        self.total_s = None
        self.chunks = []

    @property
    def reused(self):
        return self.timings.get("cache_n", 0)

    @property
    def tier(self):
        return self.timings.get("cache_tier")

    @property
    def reason(self):
        return self.timings.get("cache_reason")

    @property
    def content(self):
        """What must be equal however the state came to the slot."""
        return self.text, self.finish, [(entry.get("bytes"), entry["logprob"]) for entry in self.logprobs]


class Server:
    """`strata serve` on a free port. Use as a context manager, or call stop() or kill()."""

    def __init__(self, binary, options=(), environment=None, echo=None, prefix=()):
        self.command = [*prefix, binary, "serve", "--port", "0", *map(str, options)]
        self._environment = {**os.environ, **(environment or {})}
        self._echo = echo
        self.process = None
        self.output = None
        self.port = None

    def start(self):
        self.process = subprocess.Popen(self.command, bufsize=0, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, env=self._environment, start_new_session=True)
        self.output = Output(self.process.stdout, self._echo)
        try:
            _, match = self.output.wait_for(ADDRESS.search, START_DEADLINE_S)
            self.port = int(match.group(1))
            self._wait_until_healthy()
        except BaseException:
            self.kill()
            raise
        return self

    def _wait_until_healthy(self):
        deadline = time.monotonic() + START_DEADLINE_S
        while not self._healthy():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise Died("never became healthy:\n" + self.output.text())
            time.sleep(0.02)

    def _healthy(self):
        try:
            return self.request("GET", "/health").status == 200
        except (ConnectionError, http.client.HTTPException):
            return False  # it is going: the caller looks at the process

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    @property
    def base_url(self):
        return f"http://127.0.0.1:{self.port}/v1"

    def stop(self, how=signal.SIGTERM, seconds=60):
        """Exit status after a signal; killed when that takes too long."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            return self._reap(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Died(f"did not end in {seconds} s; its last lines:\n  " + "\n  ".join(self.output.lines[-20:])) from None

    def _reap(self, seconds):
        status = self.process.wait(seconds)
        self.output.join()
        return status

    def kill(self):
        """Both processes, at once."""
        engines = self.engine_pids()
        if self.process.poll() is None:
            self.process.kill()
        for pid in engines:
            kill_quietly(pid)
        self._reap(10)

    def engine_pids(self):
        return children_of(self.process.pid) if self.process.poll() is None else []

    # -- requests ---------------------------------------------------------------------------------------------------

    def connect(self, seconds=120):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)

    def request(self, method, path, body=None, headers=None, seconds=120):
        """body: bytes as they are, or anything that JSON can say."""
        connection = self.connect(seconds)
        send = dict(headers or {})
        if body is not None:
            send.setdefault("Content-Type", "application/json")
            if not isinstance(body, bytes):
                body = json.dumps(body).encode()
        try:
            connection.request(method, path, body=body, headers=send)
            response = connection.getresponse()
            return Response(response.status, response.headers, response.read())
        finally:
            connection.close()

    def json(self, method, path, body=None, headers=None, status=200):
        response = self.request(method, path, body, headers)
        if response.status != status:
            raise AssertionError(f"{method} {path}: {response.status} instead of {status}: {response.body[:500]!r}")
        return json.loads(response.body)

    def metrics(self):
        """{'name{labels}': value} of GET /metrics."""
        response = self.request("GET", "/metrics")
        if response.status != 200:
            raise AssertionError(f"/metrics: {response.status}")
        values = {}
        for line in response.body.decode().splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                values[name] = float(value)
        return values

    def metric(self, name):
        """Sum over all labels; 0 when the server never touched it."""
        return sum(v for k, v in self.metrics().items() if k == name or k.startswith(name + "{"))

    def wait_until_written(self, seconds=60):
        """Until the disk tier's queue is empty."""
        deadline = time.monotonic() + seconds
        while self.metric("strata_disk_queue_bytes") > 0:
            if time.monotonic() > deadline:
                raise Died(f"the disk queue was not empty after {seconds} s")
            time.sleep(0.02)

    def chat(self, messages, **keys):
        return self.complete("/v1/chat/completions", {"messages": messages, **keys})

    def complete(self, path, body):
        return self._streamed(path, body) if body.get("stream") else self._whole(path, body)

    def _whole(self, path, body):
        started = time.monotonic()
        document = self.json("POST", path, body)
        answer = Answer()
        answer.total_s = time.monotonic() - started
        choice = document["choices"][0]
        answer.text = choice["message"]["content"] if "message" in choice else choice["text"]
        answer.finish = choice["finish_reason"]
        answer.usage = document["usage"]
        answer.timings = document["timings"]
        answer.logprobs = (choice.get("logprobs") or {}).get("content") or []
        return answer

    def _streamed(self, path, body):
        answer = Answer()
        connection = self.connect()
        try:
            started = time.monotonic()
            connection.request("POST", path, body=json.dumps(body).encode(), headers={"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                raise AssertionError(f"POST {path}: {response.status}: {response.read()[:500]!r}")
            for raw in response:
                line = raw.decode("utf-8").rstrip("\r\n")
                if not line.startswith("data: "):
                    continue
                if line == "data: [DONE]":
                    break
                self._take_chunk(answer, json.loads(line[6:]), started)
            answer.total_s = time.monotonic() - started
            if answer.first_token_s is None:
                answer.first_token_s = answer.total_s
            return answer
        finally:
            connection.close()

    @staticmethod
    def _take_chunk(answer, chunk, started):
        if "error" in chunk:
            raise AssertionError(f"the stream ended with {chunk['error']}")
        answer.chunks.append(chunk)
        answer.usage = chunk.get("usage") or answer.usage
        answer.timings = chunk.get("timings") or answer.timings
        for choice in chunk["choices"]:
            text = choice["delta"].get("content") if "delta" in choice else choice.get("text")
            if text:
                if answer.first_token_s is None:
                    answer.first_token_s = time.monotonic() - started
                answer.text += text
            answer.logprobs += (choice.get("logprobs") or {}).get("content") or []
            answer.finish = choice.get("finish_reason") or answer.finish


def kill_quietly(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Generated:
    """Answer of the engine to one GEN line."""

    def __init__(self):
        self.tokens = []
        self.logprobs = []
        self.reused = None
        self.tier = None
        self.done = {}
        self.error = None

    @property
    def content(self):
        return tuple(self.tokens), tuple(self.logprobs)


class Engine:
    """`strata engine` on its line protocol."""

    def __init__(self, binary, options=()):
        self.command = [binary, "engine", *map(str, options)]
        self.process = None
        self.output = None
        self.log = None
        self.info = {}
        self._next_id = 1
        self._read_to = 0

    def start(self, seconds=START_DEADLINE_S):
        self.process = subprocess.Popen(self.command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, start_new_session=True)
        self.output = Output(self.process.stdout)
        self.log = Output(self.process.stderr)
        try:
            self._read_to, _ = self.output.wait_for(lambda line: line.startswith("READY "), seconds)
        except Died as error:
            self.kill()
            raise Died(f"{error}\nlog:\n{self.log.text()}") from None
        for line in self.output.lines[: self._read_to]:
            if line.startswith("INFO "):
                self.info.update(word.split("=", 1) for word in line.split()[1:] if "=" in word)
        self._read_to += 1
        return self

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.kill()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(30)
        self.process.stdin.close()
        self.output.join()
        self.log.join()

    def quit(self, seconds=120):
        self.send("QUIT")
        status = self.process.wait(seconds)
        self.output.join()
        self.log.join()
        self.process.stdin.close()
        return status

    def send(self, line):
        rest = memoryview(line.encode() + b"\n")
        try:
            while rest:
                rest = rest[self.process.stdin.write(rest):]
        except (BrokenPipeError, ValueError):
            raise Died("the engine is gone") from None

    def query(self, line, word, seconds=60):
        """Sends a line; what stands behind `word` in the answer."""
        self.send(line)
        return self._next(lambda text: text.startswith(word + " "), seconds)[len(word) + 1:]

    def _next(self, wanted, seconds):
        index, _ = self.output.wait_for(wanted, seconds, self._read_to)
        self._read_to = index + 1
        return self.output.lines[index]

    def generate(self, tokens, maximum=8, seconds=120, **keys):
        """One request from its GEN line to its end."""
        number = self._next_id
        self._next_id += 1
        options = "".join(f" {key}={value}" for key, value in keys.items())
        self.send(f"GEN {number} max={maximum}{options} tokens={','.join(map(str, tokens))}")
        result = Generated()
        for_us = re.compile(rf"(RESUME|T|LP|DONE|ERR) {number}( |$)")
        while True:
            line = self._next(for_us.match, seconds)
            kind, _, rest = line.split(" ", 2)
            if kind == "T":
                result.tokens.append(int(rest))
            elif kind == "LP":
                result.logprobs.append(rest)
            elif kind == "RESUME":
                reused, result.tier = rest.split()[:2]
                result.reused = int(reused)
            elif kind == "ERR":
                result.error = rest
                return result
            else:
                result.done = dict(word.split("=", 1) for word in rest.split() if "=" in word)
                return result
