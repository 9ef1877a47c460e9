import numpy as np
import pytest

from dsv4_trt.contract import rank_file
from dsv4_trt.convert import codecs, pipeline, verify
from dsv4_trt.convert.conversion import prepare
from dsv4_trt.convert.pipeline import convert
from dsv4_trt.errors import CheckpointError
from dsv4_trt.safetensors_file import read_header
from tests.convert.checkpoints import left_behind, make, options, run


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    return {layout: make(folder / layout, layout) for layout in ("instruct", "base")}


def spoil(path, name, at):
    tensor = next(t for t in read_header(path).tensors if t.name == name)
    with path.open("r+b") as file:
        file.seek(tensor.start + at)
        old = file.read(1)[0]
        file.seek(tensor.start + at)
        file.write(bytes([old ^ 1]))


@pytest.mark.parametrize("choices", [{}, {"tp": 2, "ep": 2}, {"experts": "fp8"}], ids=str)
@pytest.mark.parametrize("layout", ["instruct", "base"])
def test_a_good_conversion_verifies(made, tmp_path, layout, choices):
    report = run(made[layout], tmp_path / "out", verify=True, **choices)
    assert report.verified_bytes > 500_000
    assert run(made[layout], tmp_path / "other", **choices).verified_bytes == 0


@pytest.mark.parametrize("experts", ["keep", "fp8"])
@pytest.mark.parametrize(
    "name",
    [
        "norm.weight",
        "embed.row_offset",
        "expert_map",
        "rope.compress.inv_freq",
        "layers.0.ffn.gate.tid2eid",
        "layers.1.attn.wqkv_a.scale",
        "layers.1.attn.compressor.wkv_gate.weight",
        "layers.2.ffn.experts.w13.weight",
        "layers.2.ffn.experts.w2.scale",
    ],
)
def test_a_wrong_byte_in_a_small_tensor_is_found(made, tmp_path, name, experts):
    choices = options(made["instruct"], tmp_path / "out", tp=2, ep=2, experts=experts)
    conversion = prepare(choices)
    convert(conversion)
    verify.verify(conversion, tmp_path / "out")
    spoil(tmp_path / "out" / "rank1.safetensors", name, 1)
    with pytest.raises(CheckpointError, match=f"'{name}' of rank1.safetensors is wrong"):
        verify.verify(conversion, tmp_path / "out")


def test_a_shift_by_one_row_in_a_large_tensor_is_found(tmp_path, monkeypatch):
    """Large pieces are only sampled, but a systematic mistake can not hide from samples."""
    monkeypatch.setattr(verify, "WHOLE_BYTES", 1000)
    source = make(tmp_path / "hf")
    conversion = prepare(options(source, tmp_path / "out"))
    convert(conversion)
    verify.verify(conversion, tmp_path / "out")
    path = tmp_path / "out" / "rank0.safetensors"
    tensor = next(t for t in read_header(path).tensors if t.name == "layers.1.attn.wq_b.weight")
    data = np.fromfile(path, np.uint8)
    rows = data[tensor.start : tensor.start + tensor.nbytes].reshape(tensor.shape)
    rows[:] = np.roll(rows, 1, axis=0)
    data.tofile(path)
    with pytest.raises(CheckpointError, match=r"layers.1.attn.wq_b.weight' .* rows \d+\.\.\d+"):
        verify.verify(conversion, tmp_path / "out")


def test_all_samples_together_cover_more_than_one_place(made, tmp_path, monkeypatch):
    monkeypatch.setattr(verify, "WHOLE_BYTES", 1000)
    conversion = prepare(options(made["instruct"], tmp_path / "out"))
    convert(conversion)
    found = set()
    for seed in range(10):
        compared = verify.verify(conversion, tmp_path / "out", seed=seed)
        assert 0 < compared < conversion.nbytes
        found.add(compared)
    spoil(tmp_path / "out" / "rank0.safetensors", "embed.weight", 5)
    caught = 0
    for seed in range(10):
        try:
            verify.verify(conversion, tmp_path / "out", seed=seed)
        except CheckpointError:
            caught += 1
    assert 0 < caught < 10  # row 0 of 64, 8 rows a sample


def test_a_failed_verification_publishes_nothing(made, tmp_path, monkeypatch):
    """A codec that is wrong forward is caught, because verification goes backward."""
    plain = codecs.f32_to_e8m0
    monkeypatch.setattr(codecs, "f32_to_e8m0", lambda scales: plain(scales) + np.uint8(1))
    with pytest.raises(CheckpointError, match="verification failed"):
        run(made["base"], tmp_path / "out", verify=True)
    assert left_behind(tmp_path) == []
    run(made["base"], tmp_path / "out")  # unverified, the mistake would have gone unnoticed


def test_a_write_that_never_reached_the_file_is_found(made, tmp_path, monkeypatch):
    plain = pipeline.RankFile.write

    def forgetful(self, offset, data):
        if offset != self.layout.offsets["layers.1.ffn.gate.weight"]:
            plain(self, offset, data)

    monkeypatch.setattr(pipeline.RankFile, "write", forgetful)
    with pytest.raises(CheckpointError, match=r"layers\.1\.ffn\.gate\.weight' of rank0"):
        run(made["instruct"], tmp_path / "out", verify=True)
    assert left_behind(tmp_path) == []


def test_rank_files_are_named_by_the_contract(made, tmp_path):
    run(made["instruct"], tmp_path / "out", tp=2)
    names = set(left_behind(tmp_path / "out"))
    assert names == {
        rank_file(0),
        rank_file(1),
        "config.json",
        "manifest.json",
        "generation_config.json",
    }
