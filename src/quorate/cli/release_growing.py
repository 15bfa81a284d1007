"""`quorate release --growing FOLDER`: a table that grows, released after each update for one budget over all."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quorate.cli.commands.release_options import ReleaseOptions
from quorate.cli.output import check_new_folder, steps
from quorate.cli.release_tables import (
    Subject,
    check_answers,
    check_declared,
    columns_file,
    names_in,
    private_records,
    public_records,
    show_release,
    write_release,
)
from quorate.core.errors import InvalidInput
from quorate.models.saving import load, open_folder, save
from quorate.release import GrowingRelease
from quorate.release.answers import parse_queries

__all__ = ["begin_growing", "run_growing"]


def begin_growing(
    folder: Path, subject: Subject, table: Path, settings: Mapping[str, Any], options: ReleaseOptions
) -> int:
    """Make the first update of a release, and keep the release in a folder before its answers leave."""
    records, updates = options.records, options.growing.updates
    if updates is None:
        raise InvalidInput("--updates says how many updates there will be, at most: 24 for two years of months")
    check_new_folder(folder)
    release = GrowingRelease(
        subject.about,
        updates=updates,
        public=public_records(subject, records.public, records.groups),
        records_per_person=None if records.groups is None else records.records_per_person,
        **settings,
    )
    return _update(release, subject, folder, table, options)


def run_growing(folder: Path, table: Path, options: ReleaseOptions) -> int:
    """Make an update of the release in a folder, or answer one that was made before as it was."""
    opened = open_folder(folder)
    release = load(opened, kind="growing release")
    subject = Subject(release.subject, tuple(names_in(opened)))
    subject.left_out = options.records.left_out
    try:
        return _update(release, subject, folder, table, options)
    finally:
        release.close()


def _update(release: GrowingRelease, subject: Subject, folder: Path, table: Path, options: ReleaseOptions) -> int:
    update, answers, output = options.growing.update, options.answers, options.output
    if update is None:
        raise InvalidInput("--update names the update, as in --update 2024-01: the same name is answered as it was")
    if output.out is None:
        raise InvalidInput("--out FOLDER says where to write the release of this update")
    check_new_folder(output.out)
    check_answers(answers)
    queries = parse_queries(answers.texts, release.subject)
    if queries:  # what cannot be asked is refused before anything is drawn
        release.domain_.find_sums(queries)
    with steps(["reading", "releasing", "writing"], quiet=output.json) as step:
        step()
        private, people = private_records(subject, table, options.records.groups, lasting=True)
        check_declared(release.domain_, private)
        step()
        made = release.update(update, private, groups=people)
        del private, people
        if not release.is_kept:
            save(release, folder, extra=columns_file(subject.names))
            release.close()
        step()
        write_release(made, subject.names, output.out, answers.synthetic)
    assert made.update_ is not None
    more = {"update": made.update_.name, "number": made.update_.number, "updates": made.update_.updates}
    return show_release(made, queries, output.out, answers.reading, more, as_json=output.json)
