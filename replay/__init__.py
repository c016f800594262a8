"""requests -> workload -> server model -> outcome. Imports `parser` only."""
