"""GGUF files that tests need and nobody offers: an adapter of any model, and a model with one more key."""

import struct

TEXT, FLOAT32 = 8, 6  # types of values
ALIGNMENT = 32
HEADER = struct.Struct("<4sIQQ")  # magic, version, tensors, keys


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def key(name, value):
    if isinstance(value, str):
        return text(name) + struct.pack("<I", TEXT) + text(value)
    return text(name) + struct.pack("<If", FLOAT32, value)


def with_key(model, name, value):
    """The model's bytes with one more text key in front of the others. Blanks fill the value up, so that the weights
    behind the keys stay where they are aligned."""
    magic, version, tensors, keys = HEADER.unpack_from(model)
    value += " " * (-len(key(name, value)) % ALIGNMENT)
    return HEADER.pack(magic, version, tensors, keys + 1) + key(name, value) + model[HEADER.size:]


def adapter(architecture, inner=8, rank=4):
    """A LoRA adapter for the first layer's queries of a model that has `inner` values there."""
    keys = [("general.type", "adapter"), ("general.architecture", architecture), ("adapter.type", "lora"),
            ("adapter.lora.alpha", 1.0)]
    shapes = [("blk.0.attn_q.weight.lora_a", inner, rank), ("blk.0.attn_q.weight.lora_b", rank, inner)]
    out = HEADER.pack(b"GGUF", 3, len(shapes), len(keys)) + b"".join(key(*entry) for entry in keys)
    size = 4 * inner * rank
    for number, (name, columns, rows) in enumerate(shapes):
        out += text(name) + struct.pack("<IQQIQ", 2, columns, rows, 0, number * size)
    return out + bytes(-len(out) % ALIGNMENT) + bytes(2 * size)
