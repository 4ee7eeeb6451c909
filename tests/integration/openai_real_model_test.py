"""The `openai` package with SmolLM2 behind the server: text, streams, forced calls, responses, models."""

import json

import client_packages
import harness
import real_model

PARAMETERS = {"type": "object", "properties": {"line": {"type": "integer"}}, "required": ["line"], "additionalProperties": False}
FLAT_TOOL = {"type": "function", "name": "read_line", "description": "Reads one line of the file.", "parameters": PARAMETERS,
             "strict": False}
TOOL = {"type": "function", "function": {k: v for k, v in FLAT_TOOL.items() if k not in ("type", "strict")}}
QUESTION = [{"role": "user", "content": "What stands in line 3? Read it."}]


class OpenAiWithARealModel(real_model.RealModelTest):
    @classmethod
    def setUpClass(cls):
        cls.module = client_packages.load("openai")
        super().setUpClass()
        cls.client = cls.module.OpenAI(base_url=cls.target.base_url, api_key="none", max_retries=0, timeout=240)

    def test_models(self):
        (model,) = self.client.models.list().data
        self.assertEqual(self.client.models.retrieve(model.id).id, model.id)
        self.assertIn("SmolLM2", model.id)
        with self.assertRaises(self.module.NotFoundError):
            self.client.models.retrieve("gpt-x")

    def test_chat_whole_and_streamed(self):
        keys = {"model": "any", "messages": [{"role": "user", "content": "Name a colour."}], "max_tokens": 8, "temperature": 0}
        whole = self.client.chat.completions.create(**keys)
        chunks = list(self.client.chat.completions.create(**keys, stream=True, stream_options={"include_usage": True}))
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in chunks if c.choices), whole.choices[0].message.content)
        self.assertTrue(whole.choices[0].message.content.strip())
        self.assertEqual(chunks[-1].usage.prompt_tokens, whole.usage.prompt_tokens)
        self.assertEqual(chunks[-1].usage.prompt_tokens_details.cached_tokens, whole.usage.prompt_tokens - 1)

    def test_a_forced_call_and_the_turn_after_it(self):
        keys = {"model": "any", "tools": [TOOL], "temperature": 0, "max_tokens": 100}
        forced = {**keys, "messages": QUESTION, "tool_choice": "required", "parallel_tool_calls": False}
        answer = self.client.chat.completions.create(**forced)
        (call,) = answer.choices[0].message.tool_calls
        self.assertEqual((answer.choices[0].finish_reason, call.function.name), ("tool_calls", "read_line"))
        self.assertIsInstance(json.loads(call.function.arguments)["line"], int)
        with self.client.chat.completions.stream(**forced) as stream:
            streamed = stream.get_final_completion().choices[0].message.tool_calls[0]
        self.assertEqual(streamed.function.arguments, call.function.arguments)
        result = {"role": "tool", "tool_call_id": call.id, "content": "return 42"}
        turn = {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]}
        after = self.client.chat.completions.create(**{**keys, "max_tokens": 4}, messages=[*QUESTION, turn, result])
        self.assertEqual(after.choices[0].finish_reason, "length")
        self.assertGreater(after.usage.prompt_tokens_details.cached_tokens, answer.usage.prompt_tokens - 1)

    def test_responses_whole_and_streamed(self):
        keys = {"model": "any", "instructions": "Be brief.", "input": "Name a colour.", "temperature": 0, "max_output_tokens": 6}
        whole = self.client.responses.create(**keys)
        events = list(self.client.responses.create(**keys, stream=True))
        self.assertEqual("".join(e.delta for e in events if e.type == "response.output_text.delta"), whole.output_text)
        self.assertTrue(whole.output_text.strip())
        self.assertIn(events[-1].type, ("response.incomplete", "response.completed"))
        self.assertEqual(events[-1].response.usage.input_tokens_details.cached_tokens, whole.usage.input_tokens - 1)

    def test_a_forced_call_of_responses(self):
        with self.client.responses.stream(model="any", input=QUESTION, tools=[FLAT_TOOL], tool_choice="required",
                                          parallel_tool_calls=False, temperature=0, max_output_tokens=100) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_response()
        self.assertEqual((kinds[0], kinds[-1]), ("response.created", "response.completed"))
        (call,) = [item for item in final.output if item.type == "function_call"]
        self.assertEqual(call.name, "read_line")
        self.assertIsInstance(json.loads(call.arguments)["line"], int)

    def test_an_answer_in_the_form_that_was_asked_for(self):
        schema = {"name": "colour", "schema": {"type": "object", "properties": {"colour": {"enum": ["red", "green"]}},
                                               "required": ["colour"], "additionalProperties": False}}
        answer = self.client.chat.completions.create(
            model="any", messages=[{"role": "user", "content": "Which colour has grass?"}], max_tokens=40, temperature=0,
            response_format={"type": "json_schema", "json_schema": schema})
        self.assertIn(json.loads(answer.choices[0].message.content)["colour"], ("red", "green"))


if __name__ == "__main__":
    harness.main()
