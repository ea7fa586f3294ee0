"""Who writes a plan: local models, servers, their prompts and files, the roles of workers, the grammar of a plan."""
