"""The `openai-agents` framework: a main agent whose sub-agents are its tools. Three conversations share one slot; the
main one, parked in RAM while its sub-agents work, comes back from there (RAM-2, RAM-3)."""

import asyncio

import client_packages
import harness
import real_model
import scripted_proxy


def rules(of):
    return " ".join(f"As {of} you follow rule {n} of the house." for n in range(1, 9))


class SubAgents(harness.StrataTest):
    @classmethod
    def setUpClass(cls):
        cls.options = real_model.options(slots=1)
        cls.agents = client_packages.load("openai-agents", "agents")
        cls.agents.set_tracing_disabled(True)

    def setUp(self):
        self.target = self.server(self.options)
        self.proxy = scripted_proxy.Proxy(self.target.base_url, self.answer)
        self.addCleanup(self.proxy.close)

    @staticmethod
    def who(body):
        return body["messages"][0]["content"].split()[1]

    def answer(self, body):
        """The main agent asks one sub-agent after the other, and then answers."""
        if self.who(body) != "editor":
            return scripted_proxy.said(f"The {self.who(body)} has seen to it.")
        results = [message for message in body["messages"] if message["role"] == "tool"]
        if len(results) < 2:
            return scripted_proxy.called(("find_facts", "check_words")[len(results)], {"input": "the moon"}, len(results))
        return scripted_proxy.said("Done: " + " ".join(message["content"] for message in results))

    def team(self):
        import openai  # comes with the framework

        client = openai.AsyncOpenAI(base_url=self.proxy.base_url, api_key="none", max_retries=0, timeout=240)
        model = self.agents.OpenAIChatCompletionsModel(model="any", openai_client=client)

        def agent(of, **more):
            return self.agents.Agent(name=of, instructions=f"The {of} works here. {rules(of)}", model=model, **more)

        return agent("editor", tools=[
            agent("researcher").as_tool(tool_name="find_facts", tool_description="Finds facts."),
            agent("corrector").as_tool(tool_name="check_words", tool_description="Checks words.")])

    def test_the_main_conversation_comes_back_after_its_sub_agents(self):
        result = asyncio.run(self.agents.Runner.run(self.team(), "Write about the moon."))
        self.assertEqual(self.proxy.errors, [])
        self.assertEqual(result.final_output, "Done: The researcher has seen to it. The corrector has seen to it.")
        self.assertEqual([self.who(body) for body, _ in self.proxy.requests],
                         ["editor", "researcher", "editor", "corrector", "editor"])
        turns = [answer for body, answer in self.proxy.requests if self.who(body) == "editor"]
        for before, turn in zip(turns, turns[1:]):
            self.assertEqual(turn["timings"]["cache_tier"], "ram", turn["timings"])
            self.assertGreater(turn["timings"]["cache_n"], before["usage"]["prompt_tokens"] - 16, turn["timings"])


if __name__ == "__main__":
    harness.main()
