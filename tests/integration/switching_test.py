"""Agents that switch on two slots: parked, spilled and restored conversations answer as if they had never left (invariant 1)."""

import harness


class Switching(harness.StrataTest):
    ROUNDS = 3

    def switch_for_rounds(self, layout, stages, *options, ram_mib=2, context=harness.CONTEXT):
        folder = self.folder()
        model = [*harness.model_options(layout, stages, context), *options]
        ram_mib *= stages  # each stage has as many layers, so a conversation is larger by as much
        cached = self.server(model, harness.cache_options(folder, ram_mib))
        uncached = self.server(model, ["--conversation-cache-mib", 0])
        conversations = [harness.Conversation(f"{layout}{stages}/{n}") for n in range(7)]
        tiers = set()
        for turn in range(self.ROUNDS):
            for conversation in conversations:
                answer = self.compare(cached, uncached, conversation)
                self.assertEqual(answer.timings["cache_n"] + answer.timings["prompt_n"], answer.usage["prompt_tokens"])
                self.assertEqual(answer.usage["prompt_tokens_details"]["cached_tokens"], answer.reused)
                if turn:
                    self.assertGreater(answer.reused, 300, f"{conversation.name}, turn {turn}: {answer.timings}")
                    tiers.add(answer.tier)
                self.check_budgets(cached, ram_mib)
        return tiers, cached

    def check_budgets(self, server, ram_mib):
        """Invariants 2 and 3, seen from outside."""
        values = server.metrics()
        self.assertLessEqual(values.get('strata_tier_bytes{tier="ram"}', 0), ram_mib << 20)
        self.assertLessEqual(values.get('strata_tier_bytes{tier="disk"}', 0), 32768 << 20)

    def test_attention_comes_back_from_ram_and_disk_ram_2_disk_1(self):
        tiers, cached = self.switch_for_rounds("attention", 1)
        self.assertIn("disk", tiers)
        self.assertGreater(cached.metric("strata_disk_written_bytes_total"), 0)

    def test_attention_in_two_stages_disk_11(self):
        self.assertIn("disk", self.switch_for_rounds("attention", 2)[0])

    def test_sliding_window_ram_6(self):
        self.switch_for_rounds("sliding", 1)

    def test_sliding_window_in_two_stages_ram_6_disk_11(self):
        self.switch_for_rounds("sliding", 2)

    def test_recurrent_state_ram_6(self):
        self.switch_for_rounds("hybrid", 1)

    def test_recurrent_state_in_two_stages_ram_6_disk_11(self):
        self.switch_for_rounds("hybrid", 2)

    def test_state_kept_whole_ram_6(self):
        """Each checkpoint has room for a full context then, so the context is short and the budget is not."""
        tiers, _ = self.switch_for_rounds("attention", 1, "--state-granularity", "whole", ram_mib=8, context=1024)
        self.assertIn("disk", tiers)

    def test_another_first_word_finds_nothing(self):
        """The control: equal but for its beginning, a prompt has nothing to reuse (RAM-3)."""
        server = self.server(harness.model_options(), harness.cache_options())
        text = harness.words("control", 500)
        keys = {"max_tokens": 2, "temperature": 0}
        server.chat([{"role": "user", "content": "one " + text}], **keys)
        other = server.chat([{"role": "user", "content": "two " + text}], **keys)
        self.assertLess(other.reused, 16, other.timings)
        again = server.chat([{"role": "user", "content": "one " + text}], **keys)
        self.assertGreater(again.reused, 480, again.timings)

    def test_a_common_prefix_never_mixes_conversations(self):
        """Two conversations that are equal for 95 % keep apart."""
        model = harness.model_options()
        cached = self.server(model, harness.cache_options(self.folder()))
        uncached = self.server(model, ["--conversation-cache-mib", 0])
        system = harness.words("common", 570)
        pair = [harness.Conversation(f"twin {n}", size=30, system=system) for n in range(2)]
        filler = [harness.Conversation(f"filler {n}", size=450) for n in range(5)]
        for _ in range(3):
            for conversation in [pair[0], pair[1], *filler]:
                self.compare(cached, uncached, conversation)

    def test_without_the_cache_nothing_is_kept_ram_1(self):
        server = self.server(harness.model_options(), ["--conversation-cache-mib", 0])
        text = [harness.words(n, 300) for n in range(3)]
        keys = {"max_tokens": 2, "temperature": 0}
        for content in text:
            server.chat([{"role": "user", "content": content}], **keys)
        again = server.chat([{"role": "user", "content": text[0]}], **keys)
        self.assertLess(again.reused, 16, again.timings)


if __name__ == "__main__":
    harness.main()
