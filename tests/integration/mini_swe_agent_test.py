"""`mini`, the program of mini-swe-agent, repairs a small repository with SmolLM2 behind it: every step is one request more
of the same conversation, and what the steps before it had is not read again (RAM-3)."""

import json
import os
import subprocess

import client_packages
import harness
import real_model
import scripted_proxy

SYSTEM = "You repair programs. Answer with one call of bash. " + " ".join(
    f"Rule {n}: read before you write, and change one thing at a time." for n in range(1, 6))
CONFIG = {
    "agent": {"system_template": SYSTEM, "instance_template": "Please solve this: {{task}}", "mode": "yolo", "step_limit": 8,
              "cost_limit": 0.0, "confirm_exit": False},
    "environment": {"environment_class": "local", "env": {"PAGER": "cat"}, "timeout": 60},
    "model": {"model_class": "litellm", "model_name": "openai/SmolLM2", "cost_tracking": "ignore_errors",
              "model_kwargs": {"drop_params": True, "temperature": 0.0, "timeout": 240},
              "observation_template": "<returncode>{{output.returncode}}</returncode>\n<output>\n{{output.output}}</output>"},
}
COMMANDS = ["ls", "cat calc.py", "sed -i 's/a - b/a + b/' calc.py && cat calc.py", "python3 -B check.py",
            "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"]


class MiniSweAgent(harness.StrataTest):
    def setUp(self):
        options = real_model.options()
        self.program = os.path.join(client_packages.environment("mini-swe-agent"), "bin", "mini")
        self.target = self.server(options)

    def proxy(self):
        steps = iter(enumerate(COMMANDS))

        def course(_):
            number, command = next(steps)
            return scripted_proxy.called("bash", {"command": command}, number)

        proxy = scripted_proxy.Proxy(self.target.base_url, course)
        self.addCleanup(proxy.close)
        return proxy

    def repository(self):
        folder = os.path.join(self.folder(), "repository")
        os.mkdir(folder)
        for name, text in (("calc.py", "def add(a, b):\n    return a - b\n"),
                           ("check.py", "from calc import add\n\nassert add(2, 3) == 5\nprint('as it should be')\n")):
            with open(os.path.join(folder, name), "w", encoding="ascii") as file:
                file.write(text)
        return folder

    def run_agent(self, folder, base_url, task):
        """The process that has ended, and what the agent says of its run."""
        above = os.path.dirname(folder)
        config, course = os.path.join(above, "config.yaml"), os.path.join(above, "course.json")
        with open(config, "w", encoding="ascii") as file:
            json.dump(CONFIG, file)  # JSON is YAML
        environment = {**os.environ, "OPENAI_API_KEY": "none", "OPENAI_API_BASE": base_url, "MSWEA_CONFIGURED": "true",
                       "MSWEA_SILENT_STARTUP": "1", "MSWEA_GLOBAL_CONFIG_DIR": above, "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                       "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "HOME": above}
        done = subprocess.run([self.program, "-c", config, "-t", task, "-y", "--exit-immediately", "-o", course],
                              cwd=folder, env=environment, capture_output=True, text=True, timeout=280,
                              stdin=subprocess.DEVNULL, check=False)
        with open(course, encoding="utf-8") as file:
            return done, json.load(file)["info"]

    def test_a_run_of_five_steps(self):
        folder, proxy = self.repository(), self.proxy()
        done, info = self.run_agent(folder, proxy.base_url, "add() subtracts")
        self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr[-3000:])
        self.assertEqual((proxy.errors, info["exit_status"]), ([], "Submitted"))
        with open(os.path.join(folder, "calc.py"), encoding="ascii") as file:
            self.assertIn("a + b", file.read())
        self.check_steps([answer["usage"] for _, answer in proxy.requests])

    def test_a_task_beyond_the_context_is_told_from_other_errors(self):
        """The agent does not try again, and says why (the words of docs/http-api.md)."""
        done, info = self.run_agent(self.repository(), self.target.base_url, harness.words("task", 20000))
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual((info["exit_status"], info["model_stats"]["api_calls"]), ("ContextWindowExceededError", 1))

    def check_steps(self, steps):
        self.assertEqual(len(steps), len(COMMANDS))
        cached = [step["prompt_tokens_details"]["cached_tokens"] for step in steps]
        self.assertEqual(cached[0], 0)
        for before, after in zip(cached, cached[1:]):
            self.assertGreater(after, before, cached)
        for before, step, count in zip(steps, steps[1:], cached[1:]):
            # All of the prompt before is there again, but for what the template writes behind its last message.
            self.assertGreater(count, before["prompt_tokens"] - 16, steps)
            self.assertLess(count, step["prompt_tokens"])


if __name__ == "__main__":
    harness.main()
