"""The Textual timeline over the objects of `parser`, `replay` and `triage`."""
