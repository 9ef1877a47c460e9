"""The dsv4-trt command: one short file per subcommand."""

if __name__ != "dsv4_trt.cli":
    raise ImportError("import dsv4_trt.cli, not cli")
