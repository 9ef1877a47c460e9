"""The file of timings: read, replaced as a whole, refused before a build that would end with an error."""

import resource

import pytest

from dsv4_trt.builder.lowering.timing_cache import can_be_written, read_timings, write_timings
from dsv4_trt.builder.plans import PlanOptions
from dsv4_trt.errors import BuildError, ConfigError


def test_what_is_written_is_read(tmp_path):
    for timings in (b"old", b"new"):
        write_timings(tmp_path / "timings", timings)
        assert read_timings(tmp_path / "timings") == timings
    assert [path.name for path in tmp_path.iterdir()] == ["timings"]


def test_a_link_stays_one(tmp_path):
    (tmp_path / "link").symlink_to("timings")
    write_timings(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "timings").read_bytes() == b"new"


def test_a_full_disk_leaves_what_was_there(tmp_path):
    write_timings(tmp_path / "timings", b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(BuildError, match="timings can not be written: File too large"):
            write_timings(tmp_path / "timings", bytes(1000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


def test_a_file_that_can_not_be_read_is_said(tmp_path):
    with pytest.raises(BuildError, match="can not be read: Is a directory"):
        read_timings(tmp_path)


def test_what_can_not_be_replaced_is_refused_before_the_build(tmp_path):
    for path in (tmp_path, tmp_path / "missing" / "timings", "/dev/null"):
        with pytest.raises(ConfigError, match="can not be written; name a file in a folder"):
            PlanOptions(output_timing_cache=tmp_path / path).check("tensorrt")
    assert can_be_written(tmp_path / "timings")
    PlanOptions(output_timing_cache=tmp_path / "timings").check("tensorrt")
