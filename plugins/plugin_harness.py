"""Takes TensorRT plugins through their life without TensorRT, by the harness that is built beside them.

Shapes and types are TensorRT's: dimensions of a block table in the order of memory, every type of one byte
INT8 (`Param.shown`, `plan_record.ELEMENT_TYPES`).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

from dsv4_trt.errors import PluginError
from dsv4_trt.plugins.harness_plugin import HarnessPlugin
from dsv4_trt.plugins.library_build import HARNESS_FILE
from dsv4_trt.plugins.plugin_fields import Field, fields_arg, read_fields
from dsv4_trt.plugins.plugin_structures import FieldsArg

_PHASES = {"build": 0, "runtime": 1}


class Harness:
    """A plugin library, loaded as TensorRT loads it."""

    def __init__(self, library: Path, harness: Path | None = None) -> None:
        """`harness`: what is built beside the library, unless it is named.

        Raises:
            PluginError: a file is not there, or the library is none of TensorRT plugins.
        """
        path = harness or library.with_name(HARNESS_FILE)
        try:
            self.c = ctypes.CDLL(str(path))
        except OSError as error:
            raise PluginError(
                f"the plugin harness {path} can not be loaded: {error}; build it with "
                "`dsv4-trt plugins build --tensorrt_include DIR`"
            ) from error
        self._declare()
        self._library = self.c.dsv4_harness_open(os.fsencode(library))
        if not self._library:
            raise PluginError(f"{library} has no TensorRT plugins: {'; '.join(self.messages())}")
        count = self.c.dsv4_harness_num_creators(ctypes.c_void_p(self._library))
        found = [
            self.c.dsv4_harness_creator(ctypes.c_void_p(self._library), i) for i in range(count)
        ]
        self._creators = {self._creator_text(creator)[0]: creator for creator in found}

    @property
    def creators(self) -> dict[str, tuple[str, str]]:
        """Version and namespace of each creator, by its name."""
        return {
            name: self._creator_text(creator)[1:]  # type: ignore[misc]
            for name, creator in self._creators.items()
        }

    def field_names(self, op: str) -> list[tuple[str, str]]:
        """Name and type of each field that a creator wants."""
        fields = self.c.dsv4_harness_creator_fields(ctypes.c_void_p(self._creators[op]))
        return [(found.name, found.type) for found in read_fields(fields.contents, values=False)]

    def create(self, op: str, fields: Sequence[Field], phase: str = "build") -> HarnessPlugin:
        """A plugin for the `build` or the `runtime` phase; `PluginError` with what its creator logs."""
        made = self.c.dsv4_harness_create(
            ctypes.c_void_p(self._creators[op]),
            op.encode(),
            ctypes.byref(fields_arg(fields)),
            ctypes.c_int32(_PHASES[phase]),
        )
        return self.plugin(made)

    def plugin(self, address: int | None) -> HarnessPlugin:
        """The plugin at an address; `PluginError` if there is none."""
        if not address:
            raise PluginError(
                "; ".join(self.messages()) or "no plugin was made, and nothing said why"
            )
        return HarnessPlugin(self, address)

    def context(self) -> HarnessContext:
        """A new execution context."""
        return HarnessContext(self)

    def messages(self) -> list[str]:
        """What has been logged since the last call."""
        text: bytes = self.c.dsv4_harness_messages()
        return text.decode(errors="replace").splitlines()

    def _creator_text(self, creator: int) -> tuple[str, ...]:
        texts = [
            self.c.dsv4_harness_creator_text(ctypes.c_void_p(creator), which) for which in range(3)
        ]
        return tuple(text.decode() for text in texts)

    def _declare(self) -> None:
        text, address = ctypes.c_char_p, ctypes.c_void_p
        for name in ("messages", "creator_text", "text", "timing_cache_id", "metadata"):
            getattr(self.c, f"dsv4_harness_{name}").restype = text
        self.c.dsv4_harness_context_errors.restype = text
        for name in ("open", "creator", "create", "clone", "context", "attach"):
            getattr(self.c, f"dsv4_harness_{name}").restype = address
        for name in ("creator_fields", "serialized"):
            getattr(self.c, f"dsv4_harness_{name}").restype = ctypes.POINTER(FieldsArg)
        self.c.dsv4_harness_workspace.restype = ctypes.c_int64


class HarnessContext:
    """An execution context: where plugins that are attached to it report errors."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self.address = ctypes.c_void_p(harness.c.dsv4_harness_context())

    def errors(self) -> list[str]:
        """What was reported since the last call: `code: text` each."""
        text: bytes = self._harness.c.dsv4_harness_context_errors(self.address)
        return text.decode(errors="replace").splitlines()

    @property
    def references(self) -> int:
        """How often its error recorder is held."""
        found: int = self._harness.c.dsv4_harness_context_references(self.address)
        return found

    def close(self) -> None:
        """Destroy it, after the plugins that are attached to it."""
        self._harness.c.dsv4_harness_destroy_context(self.address)
