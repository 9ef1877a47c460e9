import json
import os

import numpy as np
import pytest
from safetensors.numpy import save_file

from dsv4_trt.convert.shard_reader import open_shards
from dsv4_trt.errors import CheckpointError
from dsv4_trt.safetensors_file import MAX_HEADER_BYTES, read_header
from tests.convert.checkpoints import header_bytes


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_reads_what_the_safetensors_library_writes(tmp_path):
    arrays = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.array([7], np.int64),
        "c": np.array(3, np.int8),
        "empty": np.zeros((0, 4), np.float32),
    }
    save_file(arrays, tmp_path / "x.safetensors", metadata={"format": "np"})
    file = read_header(tmp_path / "x.safetensors")
    assert file.metadata == {"format": "np"}
    assert {t.name: t.shape for t in file.tensors} == {n: a.shape for n, a in arrays.items()}
    with open_shards([file.path]) as reader:
        for tensor in file.tensors:
            data = reader.read(tensor, 0, tensor.nbytes)
            assert data.tobytes() == arrays[tensor.name].tobytes()


GOOD = {"a": entry("F32", [2], 0, 8), "b": entry("I8", [3], 8, 11)}
LIES = {
    "overlap": ({**GOOD, "b": entry("I8", [3], 7, 10)}, 10, "'b' overlaps tensor 'a'"),
    "same bytes twice": ({**GOOD, "b": entry("F32", [2], 0, 8)}, 8, "overlaps"),
    "hole": (
        {**GOOD, "b": entry("I8", [3], 9, 12)},
        12,
        "1 bytes between tensor 'a' and tensor 'b'",
    ),
    "hole at the start": ({"a": entry("I8", [3], 2, 5)}, 5, "2 bytes between the header"),
    "beyond the end": (GOOD, 10, "'b' ends at byte .*the file has"),
    "data after the end": (GOOD, 13, "2 bytes after tensor 'b'"),
    "too short for its shape": ({"a": entry("F32", [2], 0, 7)}, 7, "'a' span 7 bytes.*needs 8"),
    "too long for its shape": ({"a": entry("BF16", [2], 0, 8)}, 8, "'a' span 8 bytes.*needs 4"),
    "backwards": ({"a": entry("F32", [2], 8, 0)}, 8, "'a' are \\[8, 0\\]"),
    "negative offset": ({"a": entry("F32", [2], -8, 0)}, 8, "data_offsets of 'a'"),
    "negative size": ({"a": entry("F32", [-2], 0, 8)}, 8, "shape of 'a'"),
    "fractional size": ({"a": entry("F32", [2.0], 0, 8)}, 8, "shape of 'a'"),
    "three offsets": (
        {"a": {**GOOD["a"], "data_offsets": [0, 4, 8]}},
        8,
        "expected \\[begin, end\\]",
    ),
    "no shape": ({"a": {"dtype": "F32", "data_offsets": [0, 8]}}, 8, "entry of 'a'"),
    "not an entry": ({"a": 5}, 8, "entry of 'a'"),
    "unknown dtype": ({"a": entry("F4", [2], 0, 8)}, 8, "'a' has dtype 'F4'; expected one of"),
    "odd metadata": ({"__metadata__": {"a": 1}}, 0, "__metadata__"),
    "sizes no file has": ({"a": entry("F32", [10**4000] * 2, 0, 8)}, 8, "shape of 'a'"),
    "an offset no file has": ({"a": entry("I8", [1], 2**63, 2**63 + 1)}, 1, "data_offsets of 'a'"),
    "too many sizes": ({"a": entry("I8", [2**62] * 20000, 0, 8)}, 8, "shape of 'a'"),
    "a name of two lines": ({"a\nb": entry("I8", [1], 0, 1)}, 1, r"a tensor 'a\\nb'"),
    "a name that is no text": ({"a\ud800": entry("I8", [1], 0, 1)}, 1, r"a tensor 'a\\ud800'"),
    "an endless name": ({"a" * 100_000: entry("I8", [1], 0, 1)}, 1, "short printable name"),
    "endless metadata": ({"__metadata__": {str(i): i for i in range(10_000)}}, 0, "__metadata__"),
    "an endless dtype": ({"a": entry("I" * 10_000, [1], 0, 1)}, 1, "'a' has dtype 'III"),
    "not an object": ([1], 0, "header is a list"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lying_header_is_refused(tmp_path, lie):
    entries, data_bytes, message = LIES[lie]
    path = tmp_path / "x.safetensors"
    path.write_bytes(header_bytes(entries) + bytes(data_bytes))
    with pytest.raises(CheckpointError, match=message) as refused:
        read_header(path)
    assert str(path) in str(refused.value)
    assert len(str(refused.value)) < len(str(path)) + 500
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has 0 bytes"),
        (b"\x05\0\0", "has 3 bytes"),
        ((50).to_bytes(8, "little") + b"{}", "header needs 58 bytes, the file has 10"),
        ((MAX_HEADER_BYTES + 1).to_bytes(8, "little") + b"{}", "header length"),
        (b"\xff" * 16, "header length"),
        ((2).to_bytes(8, "little") + b"{]", "not JSON"),
        ((2).to_bytes(8, "little") + b"\xff\xfe", "not JSON"),
        ((6).to_bytes(8, "little") + "{}".encode("utf-16"), "not JSON"),
        ((5).to_bytes(8, "little") + b"\xef\xbb\xbf{}", "not JSON"),
        ((200_000).to_bytes(8, "little") + b"[" * 200_000, "nested too deeply"),
    ],
)
def test_a_broken_start_is_refused(tmp_path, content, message):
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        read_header(tmp_path / "x.safetensors")


def test_a_name_listed_twice_is_refused(tmp_path):
    one = json.dumps(entry("I8", [1], 0, 1))
    text = f'{{"a": {one}, "a": {one}}}'.encode()
    (tmp_path / "x.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + b"\0")
    with pytest.raises(CheckpointError, match="'a' twice"):
        read_header(tmp_path / "x.safetensors")


def test_a_name_listed_twice_is_found_fast_among_many(tmp_path):
    keys = [*range(200_000), 199_999]
    text = ("{" + ",".join(f'"k{key}":1' for key in keys) + "}").encode()
    (tmp_path / "x.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    with pytest.raises(CheckpointError, match="'k199999' twice"):
        read_header(tmp_path / "x.safetensors")


def test_a_file_that_shrinks_while_it_is_read_is_an_error_not_a_crash(tmp_path):
    path = tmp_path / "x.safetensors"
    save_file({"a": np.zeros(1000, np.float32)}, path)
    (tensor,) = read_header(path).tensors
    with open_shards([path]) as reader:
        os.truncate(path, 2000)
        with pytest.raises(CheckpointError, match="became shorter"):
            reader.read(tensor, 0, tensor.nbytes)
