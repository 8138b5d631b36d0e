#!/usr/bin/env python3
"""Frees the batch of the upstream YOLOX-nano export, which is fixed at one.

    free_batch.py IN OUT

Three Reshape constants at the end of the network say [1, 85, -1]; they become [0, 85, -1], where 0 means "as it
came in". The input's and the output's first dimension become the symbol N, and the shapes noted for the values
in between, which hold for a batch of one only, are dropped. Nothing else changes, and the bytes that come out are
always the same.

An ONNX file is a protobuf message, and these edits are few, so they are made on the encoded message itself: all
else is copied byte for byte and no package is needed. What the field numbers below mean is in onnx.proto.
"""

import pathlib
import struct
import sys

FIXED = struct.pack("<3q", 1, 85, -1)
FREE = struct.pack("<3q", 0, 85, -1)
RESHAPES = 3

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def read_varint(message, at):
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number, payload):
    return varint(number << 3 | BYTES) + varint(len(payload)) + payload


def rewrite(message, edits):
    """Copies a message; the payload of each field in `edits` goes through its function, which may give None to
    leave the field out."""
    out, at = [], 0
    while at < len(message):
        start = at
        key, at = read_varint(message, at)
        number, wire = key >> 3, key & 7
        if wire == BYTES:
            length, at = read_varint(message, at)
            payload, at = message[at : at + length], at + length
            if len(payload) != length:
                raise ValueError("the message ends inside a field")
            if number in edits:
                payload = edits[number](payload)
                if payload is not None:
                    out.append(field(number, payload))
                continue
        elif wire == VARINT:
            _, at = read_varint(message, at)
        elif wire in (FIXED64, FIXED32):
            at += 8 if wire == FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire} is not of this format")
        out.append(message[start:at])
    return b"".join(out)


def free_first_dimension(value_info):
    """ValueInfoProto.type (2) .tensor_type (1) .shape (2) .dim (1): the first becomes dim_param (2) = "N"."""
    dims = iter([field(2, b"N")])
    shape = {1: lambda dim: next(dims, dim)}
    tensor = {2: lambda payload: rewrite(payload, shape)}
    kind = {1: lambda payload: rewrite(payload, tensor)}
    return rewrite(value_info, {2: lambda payload: rewrite(payload, kind)})


def free_batch(model):
    freed = 0

    def free_reshape(raw_data):
        nonlocal freed
        if raw_data != FIXED:
            return raw_data
        freed += 1
        return FREE

    graph = {
        5: lambda initializer: rewrite(initializer, {9: free_reshape}),  # TensorProto.raw_data
        11: free_first_dimension,  # inputs
        12: free_first_dimension,  # outputs
        13: lambda value_info: None,
    }
    result = rewrite(model, {7: lambda payload: rewrite(payload, graph)})
    if freed != RESHAPES:
        raise ValueError(f"{freed} constants are [1, 85, -1], not {RESHAPES}: this is another network")
    return result


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: free_batch.py IN OUT")
    source, target = map(pathlib.Path, sys.argv[1:])
    try:
        target.write_bytes(free_batch(source.read_bytes()))
    except (OSError, ValueError, IndexError) as error:
        sys.exit(f"free_batch.py: {source}: {error}")


if __name__ == "__main__":
    main()
