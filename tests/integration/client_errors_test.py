"""What the clients' own packages make of this server's errors: a wrong key, an unknown model, a prompt that is too long, a
server or an engine that goes away while they wait (docs/http-api.md, SRV-1). Nothing hangs: each client gets its answer
from the next engine, or its package's own exception."""

import json
import os
import signal
import socket
import threading
import time

import client_packages
import harness

DEADLINE_S = 120
SLOW_MODEL = {"layers": 8, "ffn": 16384}  # an answer of ANSWER tokens takes it a second or two
ANSWER = 800
LONG = {"role": "user", "content": harness.words("long", harness.CONTEXT + 50)}
SHORT = {"role": "user", "content": "Say something."}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Asking(threading.Thread):
    """One request on a thread of its own: `outcome` is what it answered or raised."""

    def __init__(self, ask):
        super().__init__(daemon=True)
        self.outcome = None
        self._ask = ask
        self.start()

    def run(self):
        try:
            self.outcome = self._ask()
        except Exception as error:  # whatever the package raises is what is looked at
            self.outcome = error

    def result(self):
        self.join(DEADLINE_S)
        if self.is_alive():
            raise AssertionError("the client still waits")
        return self.outcome


class Errors:
    """For both packages alike. `ask` is a whole answer of as many tokens as are asked for."""

    @classmethod
    def setUpClass(cls):
        cls.module = client_packages.load(cls.package)

    def started(self, *options, port=0, model=None):
        server = harness.strata_process.Server(
            harness.BINARY, [*harness.model_options(**(model or {})), *harness.cache_options(ram_mib=8), *options])
        server.command[server.command.index("--port") + 1] = str(port)
        server.start()
        self.addCleanup(server.kill)
        return server

    def asking(self, server, retries):
        """A request that the engine works on now."""
        client = self.client(server, retries=retries)
        self.addCleanup(client.close)
        asking = Asking(lambda: self.ask(client, [SHORT], max_tokens=ANSWER))
        deadline = time.monotonic() + DEADLINE_S
        while not self.is_processing(server):
            self.assertTrue(asking.is_alive(), asking.outcome)
            self.assertLess(time.monotonic(), deadline)
        return asking

    def is_processing(self, server):
        response = server.request("GET", "/slots")  # 503 while there is no engine
        return response.status == 200 and any(slot["is_processing"] for slot in json.loads(response.body))

    def kill_engine(self, server):
        (engine,) = server.engine_pids()
        os.kill(engine, signal.SIGKILL)

    def test_a_wrong_key(self):
        server = self.started("--api-key", "secret")
        with self.assertRaises(self.module.AuthenticationError) as caught:
            self.ask(self.client(server, key="wrong"), [SHORT])
        self.assertEqual(self.fields(caught.exception)["type"], "authentication_error")
        self.ask(self.client(server, key="secret"), [SHORT])

    def test_an_unknown_model(self):
        """Without --alias any name means the one model that is there."""
        server = self.started("--alias", "mine")
        with self.assertRaises(self.module.NotFoundError) as caught:
            self.ask(self.client(server), [SHORT], model="gpt-x")
        self.assertEqual(self.fields(caught.exception)["type"], "not_found_error")
        self.ask(self.client(server), [SHORT], model="mine")
        self.ask(self.client(self.started()), [SHORT], model="gpt-x")

    def test_a_prompt_that_is_too_long(self):
        with self.assertRaises(self.module.BadRequestError) as caught:
            self.ask(self.client(self.started()), [LONG])
        self.check_too_long(self.fields(caught.exception))

    def test_an_engine_that_dies_while_the_client_waits(self):
        server = self.started(model=SLOW_MODEL)
        asking = self.asking(server, retries=0)
        self.kill_engine(server)
        self.assertIsInstance(asking.result(), self.module.InternalServerError)
        asking = self.asking(server, retries=2)
        self.kill_engine(server)
        self.assertEqual(self.tokens(asking.result()), ANSWER, "the next engine has answered")

    def test_a_server_that_is_restarted_while_the_client_waits(self):
        port = free_port()
        server = self.started(port=port, model=SLOW_MODEL)
        gives_up, waits = self.asking(server, retries=0), self.asking(server, retries=20)
        self.assertEqual(server.stop(), 0)
        outcome = gives_up.result()
        self.assertIsInstance(outcome, self.module.APIStatusError)
        self.assertEqual(outcome.status_code, 503)
        self.started(port=port, model=SLOW_MODEL)
        self.assertEqual(self.tokens(waits.result()), ANSWER)

    def test_a_server_that_is_killed_while_the_client_waits(self):
        server = self.started(model=SLOW_MODEL)
        asking = self.asking(server, retries=0)
        server.kill()
        self.assertIsInstance(asking.result(), self.module.APIConnectionError)
        with self.assertRaises(self.module.APIConnectionError):
            self.ask(self.client(server, retries=1), [SHORT])


class OpenAi(Errors, harness.StrataTest):
    package = "openai"

    def client(self, server, key="none", retries=0):
        return self.module.OpenAI(base_url=server.base_url, api_key=key, max_retries=retries, timeout=DEADLINE_S)

    def ask(self, client, messages, max_tokens=2, model="any"):
        return client.chat.completions.create(model=model, messages=messages, max_tokens=max_tokens, extra_body={"ignore_eos": True})

    def tokens(self, answer):
        return answer.usage.completion_tokens

    def fields(self, error):
        return error.body

    def check_too_long(self, error):
        self.assertEqual((error["type"], error["code"], error["n_ctx"]), ("exceed_context_size_error", 400, harness.CONTEXT))
        self.assertGreater(error["n_prompt_tokens"], harness.CONTEXT)
        self.assertIn("exceeds the available context size", error["message"])


class Anthropic(Errors, harness.StrataTest):
    package = "anthropic"

    def client(self, server, key="none", retries=0):
        return self.module.Anthropic(base_url=server.base_url.removesuffix("/v1"), api_key=key, max_retries=retries, timeout=DEADLINE_S)

    def ask(self, client, messages, max_tokens=2, model="any"):
        return client.messages.create(model=model, messages=messages, max_tokens=max_tokens, extra_body={"ignore_eos": True})

    def tokens(self, answer):
        return answer.usage.output_tokens

    def fields(self, error):
        return error.body["error"]

    def check_too_long(self, error):
        self.assertEqual(error["type"], "invalid_request_error")
        self.assertRegex(error["message"], rf"prompt is too long: \d+ tokens > {harness.CONTEXT} maximum")


if __name__ == "__main__":
    harness.main()
