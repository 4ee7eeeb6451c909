"""One request to `POST /completion`, which Strata and llama.cpp's server answer in the same form: what came when."""

import http.client
import json
import time


class Completed:
    """A finished answer: tokens with the moments they came at, and the server's own timings."""

    def __init__(self, started_s):
        self.started_s = started_s
        self.tokens = []
        self.times_s = []  # of each chunk with tokens, on this process's clock
        self.timings = {}

    @property
    def first_token_s(self):
        return self.times_s[0] - self.started_s

    @property
    def reused(self):
        return self.timings.get("cache_n", 0)

    def gaps_s(self, begin_s=float("-inf"), end_s=float("inf")):
        """Between two chunks, of those that lie within [begin_s, end_s] at least in part."""
        pairs = zip(self.times_s, self.times_s[1:])
        return [after - before for before, after in pairs if after >= begin_s and before <= end_s]


def post(port, path, body, seconds=900):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    connection.request("POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        text = response.read()[:300]
        connection.close()
        raise AssertionError(f"POST {path}: {response.status}: {text!r}")
    return connection, response


def post_json(port, path, body):
    connection, response = post(port, path, body)
    try:
        return json.loads(response.read())
    finally:
        connection.close()


def tokenize(port, text):
    return post_json(port, "/tokenize", {"content": text})["tokens"]


def complete(port, tokens, count, on_token=None, **keys):
    """Greedy, streamed, exactly `count` tokens. on_token: called at each chunk with tokens."""
    body = {"prompt": tokens, "n_predict": count, "stream": True, "temperature": 0, "ignore_eos": True, "return_tokens": True,
            "cache_prompt": True, **keys}
    answer = Completed(time.monotonic())
    connection, response = post(port, "/completion", body)
    try:
        for raw in response:
            line = raw.decode("utf-8").strip()
            if line.startswith("data: {"):
                _take(answer, json.loads(line[6:]), on_token)
        if not answer.times_s:
            raise AssertionError("an answer without tokens")
        return answer
    finally:
        connection.close()


def _take(answer, chunk, on_token):
    if "error" in chunk:
        raise AssertionError(f"the stream ended with {chunk['error']}")
    answer.timings = chunk.get("timings") or answer.timings
    tokens = chunk.get("tokens") or []
    if not tokens or chunk.get("stop"):
        return
    answer.tokens += tokens
    answer.times_s.append(time.monotonic())
    if on_token:
        on_token(answer)
