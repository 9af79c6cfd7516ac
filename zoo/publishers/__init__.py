"""Publishers, one kind a file. "Add a publisher" in ``CONTRIBUTING.md`` lists the steps for a new one."""
