"""Requests as clients send them, and answers as they read them (docs/http-api.md)."""

import json
import shutil
import subprocess
import unittest

import harness

TEXT = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": [{"type": "text", "text": "Say something."}]}]


class Shapes(harness.StrataTest):
    @classmethod
    def setUpClass(cls):
        cls.target = harness.strata_process.Server(
            harness.BINARY, [*harness.model_options(), *harness.cache_options(ram_mib=8)]).start()
        cls.addClassCleanup(cls.target.kill)

    def test_a_streamed_answer_in_its_order(self):
        answer = self.target.chat(TEXT, stream=True, stream_options={"include_usage": True}, max_tokens=5, temperature=0)
        first, last = answer.chunks[0], answer.chunks[-1]
        self.assertEqual(first["choices"][0]["delta"], {"role": "assistant", "content": None})
        self.assertEqual(last["choices"], [])
        self.assertIn("timings", last)
        usage = last["usage"]
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])
        finish = [c for c in answer.chunks if c["choices"] and c["choices"][0].get("finish_reason")]
        self.assertEqual(len(finish), 1)
        self.assertEqual(finish[0]["choices"][0]["delta"], {})
        self.assertIs(answer.chunks[-2], finish[0])
        for chunk in answer.chunks:
            self.assertEqual(chunk["object"], "chat.completion.chunk")
            self.assertEqual(chunk["id"], first["id"])
            self.assertTrue(chunk["id"].startswith("chatcmpl-"))

    def test_without_include_usage_there_is_no_such_chunk(self):
        answer = self.target.chat(TEXT, stream=True, max_tokens=3, temperature=0)
        self.assertTrue(all(chunk["choices"] for chunk in answer.chunks))
        self.assertTrue(answer.timings)

    def test_streamed_and_whole_answers_are_the_same(self):
        keys = {"max_tokens": 12, "temperature": 0, "logprobs": True}
        self.assertEqual(self.target.chat(TEXT, **keys).content, self.target.chat(TEXT, stream=True, **keys).content)

    def test_the_requests_of_recorded_agents(self):
        """Keys, types and order as agent programs send them, without tools."""
        pi = {"model": "mock-model", "messages": TEXT, "stream": True, "stream_options": {"include_usage": True}, "store": False,
              "max_completion_tokens": 4}
        opencode = {"model": "mock-model", "max_tokens": 4, "messages": [TEXT[0], {"role": "user", "content": "Hi"}],
                    "tool_choice": "none", "stream": True, "stream_options": {"include_usage": True}}
        for body in (pi, opencode):
            answer = self.target.complete("/v1/chat/completions", body)
            self.assertLessEqual(answer.usage["completion_tokens"], 4)
            self.assertIn(answer.finish, ("length", "stop"))

    def test_each_request_that_extends_the_one_before_reuses_it(self):
        messages = [{"role": "system", "content": harness.words("system", 300)}]
        for turn in range(3):
            messages.append({"role": "user", "content": f"question {turn}"})
            answer = self.target.chat(messages, max_tokens=4, temperature=0)
            if turn:
                self.assertGreater(answer.reused, 300, answer.timings)
            messages.append({"role": "assistant", "content": answer.text})

    def test_timings_say_what_was_reused_obs_1(self):
        messages = [{"role": "user", "content": harness.words("timings", 200)}]
        first = self.target.chat(messages, max_tokens=2, temperature=0).timings
        again = self.target.chat(messages, max_tokens=2, temperature=0).timings
        for timings in (first, again):
            for key in ("cache_n", "prompt_n", "prompt_ms", "predicted_n", "predicted_ms", "cache_tier", "cache_ms", "cache_reason"):
                self.assertIn(key, timings)
        self.assertRegex(first["cache_reason"], "^(new|prefix_changed@[0-9]+)$")
        self.assertEqual(again["cache_tier"], "vram")
        self.assertEqual(again["prompt_n"], 1, "one token is always read again")

    def test_text_completions(self):
        body = {"prompt": "Once upon a time", "max_tokens": 4, "temperature": 0}
        whole = self.target.json("POST", "/v1/completions", body)
        self.assertEqual(whole["object"], "text_completion")
        streamed = self.target.complete("/v1/completions", {**body, "stream": True})
        self.assertEqual(streamed.text, whole["choices"][0]["text"])

    def test_tokens_there_and_back(self):
        text = "tiers: VRAM, RAM, disk — ünïcode"
        tokens = self.target.json("POST", "/tokenize", {"content": text})["tokens"]
        self.assertEqual(self.target.json("POST", "/detokenize", {"tokens": tokens})["content"], text)

    def test_what_clients_ask_before_they_start(self):
        self.assertEqual(self.target.json("GET", "/health")["status"], "ok")
        models = self.target.json("GET", "/v1/models")
        self.assertEqual(models["object"], "list")
        self.assertEqual(models["data"][0]["object"], "model")
        props = self.target.json("GET", "/props")
        self.assertEqual(props["total_slots"], harness.SLOTS)
        slots = self.target.json("GET", "/slots")
        self.assertEqual([slot["id"] for slot in slots], list(range(harness.SLOTS)))
        self.assertEqual(slots[0]["n_ctx"], harness.CONTEXT)

    @unittest.skipIf(shutil.which("curl") is None, "curl is not installed")
    def test_curl_as_the_readme_shows_it(self):
        done = subprocess.run(
            ["curl", "-sS", "--noproxy", "*", f"{self.target.base_url}/chat/completions", "-H", "Content-Type: application/json",
             "-d", json.dumps({"messages": TEXT, "max_tokens": 4, "temperature": 0})],
            capture_output=True, text=True, timeout=60, check=True)
        self.assertEqual(json.loads(done.stdout)["object"], "chat.completion")


class Keys(harness.StrataTest):
    def test_api_keys_srv_3(self):
        server = self.server(harness.model_options(), harness.cache_options(ram_mib=1), ["--api-key", "secret"])
        body = {"messages": TEXT, "max_tokens": 1}
        self.assertEqual(server.request("POST", "/v1/chat/completions", body).status, 401)
        self.assertEqual(server.request("POST", "/v1/chat/completions", body, {"Authorization": "Bearer wrong"}).status, 401)
        for headers in ({"Authorization": "Bearer secret"}, {"X-Api-Key": "secret"}):
            self.assertEqual(server.request("POST", "/v1/chat/completions", body, headers).status, 200)
        self.assertEqual(server.request("GET", "/v1/models").status, 200, "public")


if __name__ == "__main__":
    harness.main()
