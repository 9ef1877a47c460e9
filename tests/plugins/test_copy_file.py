"""Copies of a file by several threads, as the library does them; the GPU is the host's memory."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4_trt.errors import PluginError
from dsv4_trt.plugins.library import FilePart

SIZE = 300_017  # bytes of the file
PAGE = 4096


@pytest.fixture(scope="module")
def library(collective_library):
    return collective_library


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("file") / "weights"
    np.random.default_rng(0).integers(0, 256, SIZE, np.uint8).tofile(path)
    return path


def copy(library, file, parts, readers, pieces=1):
    """Copy parts, each a start and a size, one behind the other."""
    target = np.zeros(sum(size for _, size in parts) + 1, np.uint8)
    staging = np.zeros(2 * readers * pieces * PAGE + 1, np.uint8)
    at, given_parts = target.ctypes.data, []
    for start, size in parts:
        given_parts.append(FilePart(start, size, at))
        at += size
    library.copy_file(file, given_parts, staging.ctypes.data, staging.nbytes - 1, readers)
    assert target[-1] == staging[-1] == 0
    return target[:-1]


PARTS = st.integers(0, SIZE).flatmap(
    lambda start: st.tuples(st.just(start), st.integers(0, min(SIZE - start, 40_000)))
)


@given(st.lists(PARTS, max_size=8), st.integers(1, 5), st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_every_part_comes_whole(library, file, parts, readers, pieces):
    found = copy(library, file, parts, readers, pieces)
    whole = np.fromfile(file, np.uint8)
    assert np.array_equal(found, np.concatenate([whole[:0], *(whole[s : s + n] for s, n in parts)]))
    assert library._c.num_left() == 0


@pytest.mark.parametrize("readers", [1, 2])
def test_whatever_fails_is_said_and_leaves_nothing(library, file, readers):
    library._c.let_fail(-1)
    copy(library, file, [(1, 50_000)], readers)
    failed, unsaid = [], 0
    for call in range(library._c.num_calls()):
        library._c.let_fail(call)
        try:
            copy(library, file, [(1, 50_000)], readers)
        except PluginError as error:
            failed.append(str(error))
        else:
            unsaid += 1
        assert library._c.num_left() == 0
    library._c.let_fail(-1)
    # the last wait, when all is there; of two readers' calls it is by chance which are last, or made at all
    assert unsaid <= 1 or readers == 2
    assert failed
    assert all(message.endswith("it failed") for message in failed)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ((SIZE - 10_000, 10_001), f"weights ends at byte {SIZE}"),
        ((SIZE + 5, 1), f"weights ends at byte {SIZE + 5}"),
        ((-1, 1), "weights can not be read: Invalid argument"),
    ],
)
def test_a_file_that_is_too_short_is_said(library, file, part, message):
    with pytest.raises(PluginError, match=message):
        copy(library, file, [(0, 100_000), part], 3)
    assert library._c.num_left() == 0


@pytest.mark.parametrize("name", ["weights-\udcff", "weights/" * 250])
def test_any_path_is_said(library, tmp_path, name):
    """Also one that is no UTF-8, or long: the reason comes behind it."""
    with pytest.raises(PluginError, match=r"weights.* can not be opened: No such file"):
        copy(library, tmp_path / name, [(0, 1)], 1)
