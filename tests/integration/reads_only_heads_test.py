"""Seen from outside by strace: a start reads the heads of index files and nothing else; a body and the parts follow when a
request needs that conversation, and those of other conversations stay unread (DISK-6, B-3)."""

import os
import re
import shutil
import subprocess
import unittest
from collections import Counter

import harness
import index_file

PAGE = 4096
CALL = r"(?:read|pread64|readv|preadv2?)"
WHOLE = re.compile(rf"^(\d+) +{CALL}\(\d+<([^>]*)>.*= (\d+)$")
BEGUN = re.compile(rf"^(\d+) +{CALL}\(\d+<([^>]*)>.*<unfinished \.\.\.>$")
ENDED = re.compile(rf"^(\d+) +<\.\.\. {CALL} resumed>.*= (\d+)$")


def reads(lines):
    """(path, bytes) of each read in strace's words, those too that another thread's call stands in between."""
    begun = {}
    for line in lines:
        line = line.rstrip("\n")
        if match := WHOLE.match(line):
            yield match.group(2), int(match.group(3))
        elif match := BEGUN.match(line):
            begun[match.group(1)] = match.group(2)
        elif (match := ENDED.match(line)) and match.group(1) in begun:
            yield begun.pop(match.group(1)), int(match.group(2))


def strace_works():
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False).returncode == 0


@unittest.skipUnless(strace_works(), "strace is not installed or may not trace here")
class ReadsOnlyHeads(harness.StrataTest):
    def setUp(self):
        self.path = self.folder()
        self.model = harness.model_options()
        self.conversations = [harness.Conversation(f"head {n}", size=900) for n in range(4)]
        with harness.strata_process.Server(harness.BINARY, [*self.model, *harness.cache_options(self.path)]) as server:
            for conversation in self.conversations:
                conversation.hear(server.complete("/v1/chat/completions", conversation.next_request()))
        self.indexes = index_file.published(self.path)
        self.assertEqual(len(self.indexes), 4)

    def bytes_read(self, trace):
        """{file name: bytes} of the folder, by system calls (the posix queue; a ring's reads are not seen by strace)."""
        found = Counter()
        with open(trace, encoding="utf-8", errors="replace") as lines:
            for path, count in reads(lines):
                if os.path.dirname(path) == os.path.realpath(self.path):
                    found[os.path.basename(path)] += count
        return found

    def test_a_start_reads_heads_and_a_request_reads_its_own(self):
        trace = os.path.join(self.folder(), "trace")
        server = self.server(self.model, harness.cache_options(self.path, io="posix"),
                             prefix=["strace", "-D", "-f", "-y", "-o", trace, "-e", "trace=read,pread64,readv,preadv,preadv2"])
        at_start = self.bytes_read(trace)
        for identity, index in self.indexes.items():
            name = f"conv-{identity}.idx"
            self.assertGreaterEqual(at_start[name], index.head_bytes, "the control: the trace sees the heads")
            self.assertLess(at_start[name], index.total_bytes, name)
            self.assertLessEqual(at_start[name], index.head_bytes + index_file.FIXED_BYTES, name)
            self.assertLessEqual(at_start[f"conv-{identity}.sess"], PAGE, "at most its header")
        answer = server.complete("/v1/chat/completions", self.conversations[0].next_request())
        self.assertEqual(answer.tier, "disk", answer.timings)
        after = self.bytes_read(trace)
        touched = {name for name in after if after[name] > at_start[name]}
        self.assertEqual(len({name.split(".")[0] for name in touched}), 1, touched)
        self.assertGreaterEqual(sum(after.values()) - sum(at_start.values()), answer.reused * 1024 // 2)


if __name__ == "__main__":
    harness.main()
