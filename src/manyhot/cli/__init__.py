"""The command line: it wires, it does not compute."""
