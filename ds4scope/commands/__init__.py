"""One module a command: `register(parser)` adds its arguments, `run(args)` does it and returns the status."""
