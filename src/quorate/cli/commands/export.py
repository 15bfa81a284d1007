"""`quorate export`: a published model for other programs."""

from pathlib import Path

from quorate.cli.options import listed
from quorate.core.errors import InvalidInput

__all__ = ["export"]


def export(
    folder: Path,
    *,
    onnx: Path | None = None,
    card: Path | None = None,
    license: str = "other",
    trusted: str | None = None,
    json: bool = False,
) -> int:
    """Export a published model: as an ONNX file, or with a model card for a hub. A private folder is refused.

    Example: `quorate export rule --onnx rule.onnx`

    Parameters
    ----------
    folder
        The model, as `quorate fit linear`, `student` or `semi-private`, or `quorate.save` wrote it.
    onnx
        The ONNX file to write. It takes rows of 64-bit numbers, encoded by the model's schema, which is in its
        metadata, and returns labels and probabilities. Needs quorate[onnx].
    card
        The folder to write: the model, a skops file, and a card in the format of the Hugging Face Hub that states the
        guarantee.
    license
        The license of the card, by the hub's name for it, such as cc-by-4.0.
    trusted
        Types of estimators in the model that are not known to be safe, as for `quorate predict`.
    json
        Print one JSON object.
    """
    from quorate.cli.output import check_new_file, check_new_folder, show_bill
    from quorate.models.export import open_published, to_onnx, write_card
    from quorate.models.saving import load
    from quorate.tables import SCHEMA_FILE

    if onnx is None and card is None:
        raise InvalidInput("say what to write: --onnx FILE, or --card FOLDER")
    opened, types = open_published(folder), listed(trusted) if trusted else None
    if card is not None:
        check_new_folder(card)
    told = {"kind": opened.kind, "claim": opened.manifest["claim"]}
    if onnx is not None:
        check_new_file(onnx)
        model, files = load(opened, trusted=types), opened.contents
        schema = {"schema": files[SCHEMA_FILE].decode()} if SCHEMA_FILE in files else {}
        content = to_onnx(model, facts=schema)
        onnx.write_bytes(content)
        told |= {"onnx": str(onnx), "bytes": len(content)}
    if card is not None:
        told["card"] = str(write_card(folder, card, license=license, trusted=types) / "README.md")
    show_bill("Exported: may be published", told, as_json=json)
    return 0
