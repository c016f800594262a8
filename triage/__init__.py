"""events, requests, outcomes -> findings -> report. Imports `parser` and `replay`."""
