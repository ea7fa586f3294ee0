"""The Conductors: local models (``local``), servers (``remote``), the prompts and the grammar of a plan."""
