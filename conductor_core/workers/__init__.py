"""Who answers a step: workers over HTTP and in this process, pool files, servers on this machine."""
