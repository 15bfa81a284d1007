"""What `quorate.everlasting.session` keeps the files of a phase with; it stands in `quorate.models.folder`."""

from quorate.models.folder import checked_file, digest_of, write_new

__all__ = ["checked_file", "digest_of", "write_new"]
