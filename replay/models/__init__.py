"""Small seeded models in plain MLX with the cache shapes ds4 serves. Importing a module here imports
`mlx`."""
