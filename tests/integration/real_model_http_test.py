"""The HTTP API with SmolLM2 behind it: what only a real chat template, real tokens and real reading times can show
(docs/http-api.md, SRV-2)."""

import glob
import json
import os
import re
import unittest

import harness
import real_model

COUNT = "One, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve,"
CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Name a colour and nothing else, please."}]
TOOL = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {
    "type": "object", "properties": {"at": {"type": "integer"}}, "required": ["at"]}}}


class RealModelHttp(real_model.RealModelTest):
    def post(self, path, body, status=200):
        return self.target.json("POST", path, body, status=status)

    def complete(self, **keys):
        return self.post("/completion", {"prompt": COUNT, "n_predict": 4, **keys})

    def events(self, path, body):
        response = self.target.request("POST", path, {**body, "stream": True})
        self.assertEqual(response.status, 200, response.body[:500])
        return [json.loads(line[6:]) for line in response.body.decode().splitlines() if line.startswith("data: {")]

    # -- prompts

    def test_the_models_own_template(self):
        prompt = self.post("/apply-template", {"messages": CHAT})["prompt"]
        self.assertEqual(prompt, "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in CHAT)
                         + "<|im_start|>assistant\n")
        tokens = self.post("/tokenize", {"content": prompt})["tokens"]
        self.assertEqual(self.post("/detokenize", {"tokens": tokens})["content"], prompt)
        answer = self.post("/v1/chat/completions", {"messages": CHAT, "max_tokens": 1})
        self.assertEqual(answer["usage"]["prompt_tokens"], len(tokens), "special tokens are one each")
        with_tools = self.post("/apply-template", {"messages": CHAT, "tools": [TOOL]})["prompt"]
        self.assertIn('"name": "look"', with_tools)

    def test_reasoning_of_earlier_turns_is_taken(self):
        turns = [*CHAT, {"role": "assistant", "content": "Red.", "reasoning_content": "They like short answers."},
                 {"role": "user", "content": "And another?"}]
        self.assertIn("Red.", self.post("/apply-template", {"messages": turns})["prompt"])
        message = self.post("/v1/chat/completions", {"messages": turns, "max_tokens": 2})["choices"][0]["message"]
        self.assertNotIn("reasoning_content", message, "a model that does not think says nothing of it")

    # -- what is said beside the text

    def test_log_probabilities_of_chats(self):
        (choice,) = self.post("/v1/chat/completions", {"messages": CHAT, "max_tokens": 3, "temperature": 0, "logprobs": True,
                                                       "top_logprobs": 4})["choices"]
        entries = choice["logprobs"]["content"]
        self.assertEqual(len(entries), 3)
        self.assertEqual("".join(entry["token"] for entry in entries), choice["message"]["content"])
        for entry in entries:
            self.check_top(entry, entry["top_logprobs"], 4)
            self.assertEqual(bytes(entry["bytes"]).decode(), entry["token"])

    def check_top(self, entry, top, count):
        values = [other["logprob"] for other in top]
        self.assertEqual((len(values), values), (count, sorted(values, reverse=True)))
        self.assertEqual((top[0]["token"], values[0]), (entry["token"], entry["logprob"]), "greedy takes the most likely")
        self.assertLessEqual(values[0], 0)

    def test_log_probabilities_of_texts(self):
        (choice,) = self.post("/v1/completions", {"prompt": COUNT, "max_tokens": 4, "logprobs": 2})["choices"]
        said = choice["logprobs"]
        self.assertEqual("".join(said["tokens"]), choice["text"])
        self.assertEqual(said["text_offset"], [len("".join(said["tokens"][:n])) for n in range(4)])
        for token, value, top in zip(said["tokens"], said["token_logprobs"], said["top_logprobs"]):
            self.assertEqual((top[token], len(top)), (value, 2))
        native = self.complete(n_probs=2)["completion_probabilities"]
        self.assertEqual([entry["token"] for entry in native], said["tokens"])
        self.check_top(native[0], native[0]["top_logprobs"], 2)

    def test_progress_and_timings_of_streams(self):
        chunks = self.events("/completion", {"prompt": "Progress. " + COUNT * 3, "n_predict": 3, "return_progress": True,
                                             "timings_per_token": True, "cache_prompt": False})
        progress = [chunk["prompt_progress"] for chunk in chunks if "prompt_progress" in chunk]
        self.assertTrue(progress)
        self.assertEqual(progress[-1]["processed"], progress[-1]["total"])
        self.assertEqual([p["processed"] for p in progress], sorted(p["processed"] for p in progress))
        texts = [chunk for chunk in chunks if chunk["content"]]
        self.assertEqual([chunk["timings"]["predicted_n"] for chunk in texts], [1, 2, 3])
        self.assertEqual(chunks[-1]["timings"]["prompt_n"], progress[-1]["total"])
        chat = self.events("/v1/chat/completions", {"messages": CHAT, "max_tokens": 2, "return_progress": True,
                                                    "timings_per_token": True, "cache_prompt": False})
        self.assertTrue(any("prompt_progress" in chunk for chunk in chat))
        self.assertTrue(all("timings" in chunk for chunk in chat if chunk["choices"][0]["delta"].get("content")))

    # -- where it ends

    def test_stop_strings(self):
        text = self.complete(n_predict=20)["content"]
        word = re.search(r"\w+", text[4:]).group()
        answer = self.complete(n_predict=20, stop=["nowhere", word])
        self.assertEqual((answer["stop_type"], answer["stopping_word"], answer["content"]), ("word", word, text[:text.index(word)]))
        chat = {"messages": [{"role": "user", "content": "Repeat: red green blue"}], "max_tokens": 24, "temperature": 0}
        whole = self.post("/v1/chat/completions", chat)["choices"][0]["message"]["content"]
        word = re.search(r"\w+", whole[4:]).group()
        (cut,) = self.post("/v1/chat/completions", {**chat, "stop": [word]})["choices"]
        self.assertEqual((cut["message"]["content"], cut["finish_reason"]), (whole[:whole.index(word)], "stop"))
        streamed = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in
                           self.events("/v1/chat/completions", {**chat, "stop": [word]}))
        self.assertEqual(streamed, whole[:whole.index(word)])

    def test_grammars_and_schemas(self):
        answer = self.complete(grammar='root ::= " yes" | " no"', n_predict=8)
        self.assertIn(answer["content"], (" yes", " no"))
        self.assertEqual(self.post("/completion", {"prompt": "x", "grammar": "root ::= ("}, 400)["error"]["type"],
                         "invalid_request_error")
        chat = {"messages": CHAT, "max_tokens": 30, "temperature": 0}
        schema = {"type": "object", "properties": {"name": {"enum": ["red", "blue"]}}, "required": ["name"]}
        said = self.post("/v1/chat/completions", {**chat, "json_schema": schema})["choices"][0]["message"]["content"]
        self.assertIn(json.loads(said)["name"], ("red", "blue"))
        self.post("/v1/chat/completions", {**chat, "grammar": "root ::= ("}, 400)
        said = self.post("/v1/chat/completions", {**chat, "grammar": 'root ::= "yes" | "no"'})["choices"][0]
        self.assertIn(said["message"]["content"], ("yes", "no"))
        self.assertEqual(said["finish_reason"], "stop")

    # -- slots and cache

    def test_a_cache_that_was_only_filled_and_slots_that_were_chosen(self):
        prompt = "Filled. " + COUNT * 2
        filled = self.complete(prompt=prompt, n_predict=0, id_slot=1)
        self.assertEqual((filled["id_slot"], filled["content"], filled["tokens_predicted"]), (1, "", 0))
        total = filled["tokens_evaluated"]
        again = self.complete(prompt=prompt, id_slot=1)
        self.assertEqual((again["id_slot"], again["tokens_cached"], again["timings"]["cache_tier"]), (1, total - 1, "vram"))
        fresh = self.complete(prompt=prompt, id_slot=1, cache_prompt=False)
        self.assertEqual((fresh["tokens_cached"], fresh["timings"]["prompt_n"]), (0, total))
        self.assertEqual(fresh["content"], again["content"])
        moved = self.complete(prompt=prompt, id_slot=0)
        self.assertEqual((moved["id_slot"], moved["content"]), (0, again["content"]))
        self.post("/completion", {"prompt": prompt, "id_slot": 2}, 400)

    def test_a_client_that_goes_away_while_its_prompt_is_read(self):
        """Its request ends at the next chunk, and what was read is reused (design of the stream: SRV-2)."""
        prompt = "Gone. " + COUNT * 45  # more than three chunks
        begun = {"prompt": prompt, "n_predict": 400, "stream": True, "return_progress": True}
        connection = self.target.connect()
        connection.request("POST", "/completion", json.dumps(begun).encode(), {"Content-Type": "application/json"})
        response = connection.getresponse()
        progress = {"processed": 0}
        while progress["processed"] == 0:
            line = response.readline().decode()
            self.assertTrue(line, "the stream ended")
            if line.startswith("data: ") and "prompt_progress" in line:
                progress = json.loads(line[6:])["prompt_progress"]
        self.assertLess(progress["processed"], progress["total"], "there was nothing left to break off")
        response.close()
        connection.close()
        self.assert_says(self.target, rf"prompt {progress['total']} tokens = .* until cancelled")
        line = next(line for line in self.target.output.lines if f"prompt {progress['total']} tokens" in line)
        read = int(re.search(r"\+ (\d+) read", line).group(1))
        self.assertLess(read, progress["total"], "it was read to its end for nobody")
        kept = self.complete(prompt=prompt, n_predict=0)
        self.assertGreaterEqual(kept["tokens_cached"], progress["processed"])


class RecordedClients(real_model.RealModelTest):
    """What agent programs send (shared material: clients/), texts shortened, one tool each."""

    def bodies(self):
        paths = sorted(glob.glob(os.path.join(real_model.SHARED, "clients", "*.json")))
        if not paths:
            raise unittest.SkipTest(f"no recorded requests in {real_model.SHARED}/clients")
        for path in paths:
            with open(path, encoding="utf-8") as file:
                record = json.load(file)
            yield os.path.basename(path), record["url"], shortened(record["body"])

    def test_each_request_is_served(self):
        for name, path, body in self.bodies():
            with self.subTest(name=name):
                if path.endswith("/completions"):
                    self.target.json("POST", "/apply-template", body)  # with all its tools
                body["tools"] = body.get("tools", [])[:1]
                limit = "max_output_tokens" if path.endswith("/responses") else "max_tokens"
                body = {**{k: v for k, v in body.items() if not k.startswith("max_")}, limit: 2}
                response = self.target.request("POST", path, body, seconds=240)
                self.assertEqual(response.status, 200, response.body[:500])
                ends = b"response.incomplete" if path.endswith("/responses") else b"[DONE]"
                self.assertIn(ends, response.body)


def shortened(value, name=None):
    """A recorded body with words in the place of its texts, which are there as "<text LENGTH>"."""
    if isinstance(value, list):
        return [shortened(entry, name) for entry in value]
    if isinstance(value, dict):
        short = {key: shortened(entry, key) for key, entry in value.items()}
        if "required" in value and isinstance(value.get("properties"), dict):
            short["required"] = list(value["properties"])[:len(value["required"])]
        return short
    text = re.fullmatch(r"<text (\d+)>", value) if isinstance(value, str) else None
    if text is None:
        return value
    return {"arguments": "{}", "$schema": "https://json-schema.org/draft/2020-12/schema"}.get(name, "word"[:int(text.group(1))])


if __name__ == "__main__":
    harness.main()
