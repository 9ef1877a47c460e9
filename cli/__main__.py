"""`python -m dsv4_trt.cli` is the same program as `dsv4-trt`."""

from dsv4_trt.cli.main import main

main()
