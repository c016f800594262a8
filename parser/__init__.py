"""bytes -> lines -> events -> requests -> slots. Imports nothing else of ds4scope."""
