"""The picture of `dsv4-trt plan`: what it shows, and that it appears whole or not at all."""

import sys
from xml.etree import ElementTree

import pytest

from dsv4_trt.cli.plan_plot import COLOURS, figure
from dsv4_trt.errors import MissingDependency
from dsv4_trt.kv_layout import CacheClass
from tests.cli.plans import FLASH_2, plan, report

GIB = 1 << 30


def test_a_png(tmp_path):
    plan(*FLASH_2, "--plot", tmp_path / "kv.png")
    data = (tmp_path / "kv.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert data.endswith(b"IEND\xaeB`\x82")
    width, height = (int.from_bytes(data[i : i + 4], "big") for i in (16, 20))
    assert width > height > 500
    assert [path.name for path in tmp_path.iterdir()] == ["kv.png"]


def test_an_svg_is_the_same_each_time(tmp_path):
    for name in ("a.svg", "b.svg"):
        plan(*FLASH_2, "--json", "--plot", tmp_path / name)
    data = (tmp_path / "a.svg").read_bytes()
    assert data == (tmp_path / "b.svg").read_bytes()
    assert ElementTree.fromstring(data).tag == "{http://www.w3.org/2000/svg}svg"
    for part in (b"indexer_state", b"1M", b"flash, KV fp8, indexer fp4, with MTP", b"GiB"):
        assert part in data


def test_bars_are_the_bytes_of_the_report():
    found = report(*FLASH_2)
    assert set(COLOURS) == set(CacheClass)
    assert len(set(COLOURS.values())) == len(CacheClass)
    whole, each = figure(found).axes
    for index, row in enumerate(found["contexts"]):
        bars = [bars[index].get_height() * GIB for bars in whole.containers]
        assert sorted(bars) == pytest.approx(sorted(row["classes"].values()))
        top = max(bars[index].get_y() + bars[index].get_height() for bars in each.containers)
        assert top * 1024 * row["length"] == pytest.approx(row["page_bytes"])
    assert [tick.get_text() for tick in whole.get_xticklabels()][::7] == ["8K", "1M"]


def test_a_picture_that_fails_leaves_the_old_one(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    def savefig(self, path, **kwargs):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device", str(path))

    (tmp_path / "kv.png").write_bytes(b"old")
    monkeypatch.setattr(Figure, "savefig", savefig)
    with pytest.raises(OSError, match="No space left"):
        plan(*FLASH_2, "--plot", tmp_path / "kv.png")
    assert (tmp_path / "kv.png").read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 1


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingDependency, match=r"'matplotlib'.*pip install 'dsv4-trt\[plot\]'"):
        plan(*FLASH_2, "--plot", tmp_path / "kv.png")
    assert list(tmp_path.iterdir()) == []
    assert report(*FLASH_2)["model"] == "flash"
