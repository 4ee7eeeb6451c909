"""A second reader of index files, written from docs/session-format.md and not from the program's code: what the tests
know about a folder does not come from what they test."""

import os
import re
import struct
from collections import namedtuple

FIXED_BYTES = 192
_FIXED = struct.Struct("<8sIIQQQQ16s16sQQQQ11I")
_FILE = struct.Struct("<QQ")
_PART = struct.Struct("<HHIIIQQ16s")
NAME = re.compile(r"^conv-([0-9a-f]{16})\.(idx|sess)$")

Part = namedtuple("Part", "stage file first count offset length")
Index = namedtuple("Index", "id generation head_bytes total_bytes tokens files blocks checkpoints flags")


def parse(data):
    """The published description of one conversation. Checks no digest."""
    (magic, version, flags, head_bytes, total_bytes, identity, generation, _, _, _, _, _, _, token_count, _, _, media_count,
     file_count, block_count, checkpoint_count, _, _, _, _) = _FIXED.unpack_from(data)
    if magic != b"STRAINDX" or version != 1 or total_bytes != len(data):
        raise ValueError(f"not an index of version 1: {magic!r} {version}, {len(data)} bytes of {total_bytes}")
    files = [_FILE.unpack_from(data, FIXED_BYTES + i * _FILE.size) for i in range(file_count)]
    tokens = struct.unpack_from(f"<{token_count}i", data, head_bytes)
    parts_at = head_bytes + 4 * token_count + 16 * media_count
    parts = []
    for number in range(block_count + checkpoint_count):
        stage, file, first, count, _, offset, length, _ = _PART.unpack_from(data, parts_at + number * _PART.size)
        parts.append(Part(stage, file, first, count, offset, length))
    return Index(f"{identity:016x}", generation, head_bytes, total_bytes, tokens,
                 [(f"{file:016x}", length) for file, length in files],
                 parts[:block_count], parts[block_count:], flags)


def load(path):
    with open(path, "rb") as file:
        return parse(file.read())


def published(folder):
    """{conversation id: Index} of a folder."""
    found = {}
    for name in os.listdir(folder):
        match = NAME.match(name)
        if match and match.group(2) == "idx":
            try:
                found[match.group(1)] = load(os.path.join(folder, name))
            except FileNotFoundError:
                pass  # superseded since the folder was listed
    return found
