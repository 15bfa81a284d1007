"""`quorate studio`: `look`, `start`, and the commands that `start` writes, as pages in a browser on this machine.

    command     the command: a private folder, a server on loopback, a clean end
    guard       who may speak to it: one token, one cookie, this host and this origin
    pages       the routes, and templates to pages
    project     the table, the forms, and the job that `quorate start` would make of them
    runs        the commands of a job in a child process
    downloads   a folder as a zip, a script as a notebook

It decides nothing by itself: kinds come from `quorate look`, plans and commands from `quorate start`.
"""

__all__: list[str] = []
