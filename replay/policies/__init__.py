"""Built-in policies: schedulers, reuse, stores. Each class is small on purpose (`docs/plugins.md`)."""
