"""Plugins of collectives hold the process's communicator while they are attached to a context."""

import json
import sys
from pathlib import Path

import pytest

from dsv4_trt.errors import PluginError
from dsv4_trt.plugins.library import CommunicatorArg, load_library
from dsv4_trt.plugins.plugin_fields import field
from dsv4_trt.plugins.plugin_harness import Harness
from tests.plugins.trt.tensorrt_process import PACKAGES, run_with

REDUCE = [field("out_dtype", "CHAR", "F32")]
NOBODY = CommunicatorArg(1, 0, 2, 0, 0, 1, 1, 1)  # it is held, never called
NONE = "this process has no communicator"


def attach_and_clear(harness, library):
    """What attaching says without a communicator, and clearing it with three, two and one attached."""
    built = harness.create("all_reduce", REDUCE)
    plugin = harness.create("all_reduce", built.serialized(), "runtime")
    context = harness.context()
    said = [refusal(plugin.attach, context), *context.errors()]
    library.set_communicator(NOBODY)
    for_the_build = built.attach(context)
    library.clear_communicator()  # which that one does not hold
    library.set_communicator(NOBODY)
    attached = [plugin.attach(context), plugin.attach(context)]
    attached.append(attached[0].clone())
    for each in attached:
        said.append(refusal(library.clear_communicator))
        each.close()
    library.clear_communicator()
    for each in (for_the_build, plugin, built):
        each.close()
    context.close()
    return said


def refusal(call, *arguments):
    try:
        call(*arguments)
    except PluginError as error:
        return str(error)
    return "nothing was refused"


def test_contexts_hold_the_communicator(harness, library):
    said = attach_and_clear(harness, library)
    assert "ERROR: plugin 'all_reduce' (out_dtype=F32): attachToContext: " + NONE in said[0]
    assert NONE in said[1]  # to the context
    # a clone shares what it is a clone of holds
    assert [text.partition("has ")[2].split()[0] for text in said[2:]] == ["2", "2", "1"]


@pytest.mark.parametrize("package", PACKAGES)
def test_where_tensorrt_is_loaded_its_registry_holds_the_communicator_once(plugin_library, package):
    done = run_with(package, "tests.plugins.trt.test_collectives", plugin_library)
    said = json.loads(done.stdout.splitlines()[-1])
    assert NONE in said[0]
    assert [text.partition("has ")[2].split()[0] for text in said[2:]] == ["1", "1", "1"]


def main(package, library):
    __import__(package)
    path = Path(library)
    print(json.dumps(attach_and_clear(Harness(path), load_library(path))))


if __name__ == "__main__":
    main(*sys.argv[1:])
