"""A main agent and its sub-agents, as a server sees them: growing lists of chat messages that carry real text.

The requests have the shape that agent programs send (streamed with usage, all earlier messages unchanged, text parts for
user messages, date and folder at the end of the system prompt). They carry no `tools`, which the embedded model does not
know.
"""

import os

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))

RULES = """You are an agent that works in a repository of C++ code. You read before you write, you say what you saw and where, \
and you keep answers short. You never invent a file, an option or a measurement. When a task is given to you by the main \
agent, you do that task and nothing else, and report what you found in a few sentences with the lines that show it.
"""


def excerpt(path, size, start=0):
    """`size` bytes of a file of the repository as text."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        text = file.read().encode("ascii", "replace").decode()
    if len(text) < start + size:
        raise ValueError(f"{path} has {len(text)} bytes, {start + size} are needed")
    return f"Content of {path}, from byte {start}:\n{text[start:start + size]}\n"


def system_prompt(opening=RULES, size=1900):
    return opening + excerpt("docs/architecture.md", size) + "Date: 1 January\nFolder: strata\n"


class Agent:
    """One conversation: what was asked and answered so far."""

    def __init__(self, name, opening=RULES, system_bytes=1900):
        self.name = name
        self.messages = [{"role": "system", "content": system_prompt(opening, system_bytes)}]

    def ask(self, *texts):
        self.messages.append({"role": "user", "content": [{"type": "text", "text": text} for text in texts]})

    def hear(self, answer):
        self.messages.append({"role": "assistant", "content": answer})

    def request(self, max_tokens):
        return {"messages": self.messages, "stream": True, "stream_options": {"include_usage": True}, "store": False,
                "max_completion_tokens": max_tokens, "temperature": 0}
