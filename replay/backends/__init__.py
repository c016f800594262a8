"""What carries a replay out: `counts` is the server model itself (`replay.server`), `mlx` moves real
tensors."""
