"""The parts of op_speed: cases, peers, timing."""
