"""What the tests of several rooms share: processes, servers, tables, and folders that are expensive to make."""
