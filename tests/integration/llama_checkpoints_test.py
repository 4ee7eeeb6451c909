"""RAM-6 through the running program, with models whose state cannot be cut: checkpoints are taken while a prompt is read, at
the end of the system prompt, at the borders of user messages, every N tokens and spread from the end, so that a client that
rewrites its last message or edits its history goes on from what came before. Every answer is compared with a cold read."""

import json
import os

import harness
import llama_models

MODELS = ("qwen35", "lfm2", "mamba2", "nemotron_h", "gemma3")
KEEP = 6  # --prompt-cache, its default
CONTEXT = 16384
SYSTEM = 300
MESSAGE = 500
ACROSS = 16  # tokens that may lie across a border: these tokenizers join the words of a template with those around


class Chat:
    """A system prompt and user messages; answers are short."""

    def __init__(self, server, system=SYSTEM):
        self.server = server
        self.messages = [{"role": "system", "content": llama_models.tiny_words("system", system)}]

    def say(self, seed, size=MESSAGE):
        self.messages.append({"role": "user", "content": llama_models.tiny_words(seed, size)})
        answer = ask(self.server, self.messages)
        self.messages.append({"role": "assistant", "content": answer.text})
        return answer

    def rewritten(self, index, seed, size=MESSAGE):
        """The same conversation with another user message at `index`, and nothing behind it."""
        return [*self.messages[:index], {"role": "user", "content": llama_models.tiny_words(seed, size)}]


def ask(server, messages, **keys):
    return server.chat(messages, max_tokens=6, temperature=0, logprobs=True, **keys)


class Checkpoints(harness.StrataTest):
    def with_each_model(self, check, *options):
        for name in MODELS:
            with self.subTest(model=name):
                model = llama_models.options(llama_models.tiny(name), context=CONTEXT)
                server = self.server(model, harness.cache_options(ram_mib=256), options)
                check(server)
                server.kill()

    def tokens_of(self, server, messages):
        """Tokens of a conversation's beginning, without what invites the answer."""
        body = {"messages": messages, "add_generation_prompt": False}
        text = server.json("POST", "/apply-template", body)["prompt"]
        return server.json("POST", "/tokenize", {"content": text, "add_special": True, "parse_special": True})["tokens"]

    def shared(self, server, messages, *others):
        """Tokens that all of these begin with."""
        rows = [self.tokens_of(server, each) for each in (messages, *others)]
        return next((i for i, column in enumerate(zip(*rows)) if len(set(column)) > 1), min(map(len, rows)))

    def assert_as_read(self, server, messages, answer):
        """What a read from the start says. Batches differ, so log probabilities are equal within rounding alone."""
        cold = ask(server, messages, cache_prompt=False)
        self.assertEqual(cold.reused, 0)
        self.assertLess(llama_models.distance(answer, cold), 2e-3)
        self.assertEqual(answer.text, cold.text)

    def test_whoever_rewrites_the_last_message_reuses_what_came_before_ram_6(self):
        def check(server):
            chat = Chat(server)
            for turn in range(3):
                chat.say(turn)
            for again in ("one", "two"):
                rewritten = chat.rewritten(len(chat.messages) - 2, again)
                answer = ask(server, rewritten)
                before = self.shared(server, rewritten[:-1], rewritten)
                self.assertGreaterEqual(answer.reused, before - ACROSS, "the border before the last message")
                self.assertLessEqual(answer.reused, before + ACROSS)
                self.assertEqual(answer.usage["prompt_tokens_details"]["cached_tokens"], answer.reused)
                self.assert_as_read(server, rewritten, answer)

        self.with_each_model(check)

    def test_whoever_starts_again_reuses_the_system_prompt_ram_6(self):
        def check(server):
            chat = Chat(server)
            for turn in range(3):
                chat.say(turn, 300)
            started = chat.rewritten(1, "another start")
            answer = ask(server, started)
            system = self.shared(server, started[:1], started)
            self.assertGreaterEqual(answer.reused, system - ACROSS)
            self.assertLessEqual(answer.reused, system + ACROSS)
            self.assert_as_read(server, started, answer)

        self.with_each_model(check)

    def test_an_edit_a_few_thousand_tokens_back_does_not_fall_back_to_the_system_prompt_ram_6(self):
        def check(server):
            chat = Chat(server)
            chat.say("task", 5000)
            for turn in range(6):
                chat.say(turn)
            whole = len(self.tokens_of(server, chat.messages))
            edited = chat.rewritten(5, "edit")
            back = whole - self.shared(server, edited[:-1], edited)
            answer = ask(server, edited)
            self.assertGreater(back, 2000)
            self.assertGreaterEqual(answer.reused, whole - 3 * back // 2, f"edited {back} tokens back of {whole}")
            self.assert_as_read(server, edited, answer)

        self.with_each_model(check)

    def test_inside_one_long_message_every_n_tokens_ram_6(self):
        def check(server):
            chat = Chat(server)
            chat.say("long", 4000)
            text = chat.messages[1]["content"]
            edited = [chat.messages[0], {"role": "user", "content": text[: len(text) * 7 // 10] + llama_models.tiny_words("tail", 200)}]
            at = self.shared(server, edited, chat.messages)
            answer = ask(server, edited)
            self.assertEqual(answer.reused, at // 1000 * 1000)
            self.assertGreaterEqual(answer.reused, 2000)
            self.assert_as_read(server, edited, answer)

        self.with_each_model(check, "--prompt-cache-every", 1000, "--no-prompt-cache-spread")

    def test_inside_one_long_message_spread_from_the_end_ram_6(self):
        def check(server):
            chat = Chat(server)
            chat.say("long", 4000)
            text = chat.messages[1]["content"]
            edited = [chat.messages[0], {"role": "user", "content": text[: -len(text) // 8] + llama_models.tiny_words("tail", 200)}]
            whole = len(self.tokens_of(server, chat.messages))
            back = whole - self.shared(server, edited, chat.messages)
            answer = ask(server, edited)
            self.assertGreaterEqual(answer.reused, whole - 3 * back)
            self.assertLess(answer.reused, whole - back)
            self.assert_as_read(server, edited, answer)

        self.with_each_model(check, "--prompt-cache-every", 0)

    def test_at_most_so_many_are_kept_ram_6(self):
        for most, folder in ((KEEP, self.folder()), (2, self.folder())):
            model = llama_models.options(llama_models.tiny("qwen35"), context=CONTEXT, prompt_cache=most)
            server = self.server(model, harness.cache_options(folder, ram_mib=256))
            chat = Chat(server)
            for turn in range(8):
                chat.say(turn)
            self.assertEqual(server.stop(), 0)
            stored = self.stored(folder)
            self.assertLessEqual(max(entry["parts"]["checkpoint"]["count"] for entry in stored), most)
            longest = max(stored, key=lambda entry: entry["tokens"])
            self.assertEqual(longest["parts"]["checkpoint"]["count"], most)
            self.assertAlmostEqual(longest["resume_positions"][0], SYSTEM, delta=60, msg="the end of the system prompt is kept")

    def test_off_nothing_is_parked_ram_6(self):
        model = llama_models.options(llama_models.tiny("qwen35"), context=CONTEXT, prompt_cache=0)
        server = self.server(model, harness.cache_options(ram_mib=256))
        chat = Chat(server)
        for turn in range(2):
            chat.say(turn)
        self.assertEqual(ask(server, chat.rewritten(3, "rewritten")).reused, 0)
        self.assertEqual(server.metric("strata_checkpoints_total"), 0)

    def stored(self, folder):
        entries = []
        for name in harness.files_in(folder, ".idx"):
            status, text, _ = self.run_strata("sessions", "info", os.path.join(folder, name), "--json")
            self.assertEqual(status, 0, text)
            entries.append(json.loads(text))
        self.assertTrue(entries)
        return entries


if __name__ == "__main__":
    harness.main()
