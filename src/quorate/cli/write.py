"""`quorate write`: synthetic texts like those of a private column, by a public language model, under one claim."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from quorate.cli.options import AsJson, options_from, with_options
from quorate.cli.output import check_new_file, to_csv, write_or_print
from quorate.cli.reading import FileOptions
from quorate.core.errors import InvalidInput
from quorate.models.text import PrivateWriter, TransformersModel, WritingPlan
from quorate.tables import read_table


@with_options(options_from([PrivateWriter], skip="model"))
def write(
    table: Path,
    *,
    column: str,
    model: Path | None = None,
    width: int = 256,
    texts: int | None = None,
    folder: Path | None = None,
    out: Path | None = None,
    plan: bool = False,
    files: FileOptions = FileOptions(),
    json: AsJson = False,
    **settings: Any,
) -> int:
    """Write synthetic texts like those of a private column. The guarantee covers all of them together.

    Example: `quorate write notes.csv --column note --model smollm2.gguf --texts 500 --epsilon 3 --folder notes`

    Parameters
    ----------
    table
        The private table. Each row is one unit.
    column
        The column with the texts.
    model
        A causal language model: a folder of transformers, or a .gguf file. It is read from disk alone.
    width
        The tokens to which each private prompt is padded or cut. About a third of --characters is enough for English;
        more costs time.
    texts
        How many texts to write; as many as the budget pays for, without it.
    folder
        A private folder for the ledger, the deal of texts to batches and what was written. Run again with the same
        table, settings and folder, the command writes more texts from what is left of the same budget.
    out
        A CSV file to write, instead of printing.
    plan
        Print what could be written, and read nothing but the number of rows.
    """
    if out is not None:
        check_new_file(out)
    opened = read_table(table, role="private", **files.file_settings())
    if column not in opened.column_names:
        raise InvalidInput(f"--column must be a column of the table, got {column!r}")
    planned = PrivateWriter.plan(records=opened.num_rows, **settings)
    if plan:
        print(_plan_document(planned) if json else planned)
        return 0
    if model is None:
        raise InvalidInput("--model must name a language model on disk; with --plan none is needed")
    writer = PrivateWriter(TransformersModel.load(model, width=width), **settings)
    writer.fit(opened.column(column).to_pylist(), folder=folder)
    written = writer.write(texts or max(writer.texts_left_, 1))
    writer.close()
    rows = [{column: text} for text in written]
    write_or_print(_result_document(writer, written) if json else to_csv(rows, [column]), out)
    return 0


def _plan_document(plan: WritingPlan) -> str:
    return json.dumps({name: value for name, value in asdict(plan).items() if name != "choice"})


def _result_document(writer: PrivateWriter, written: list[str]) -> str:
    return json.dumps({"texts": written, "free_share": writer.free_share_, "claim": writer.claim_}) + "\n"
