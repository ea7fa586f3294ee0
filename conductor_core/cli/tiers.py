"""``tiers fit`` and ``tiers curve``: a classifier that sends easy requests to one cheap worker, and what it does."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from conductor_core.cli import options
from conductor_core.cli.inputs import needs_extra
from conductor_core.cli.log_search import Since
from conductor_core.cli.output import one_line, table
from conductor_core.errors import BadInput
from conductor_core.files import write_whole
from conductor_core.formats import plural
from conductor_core.tiers.classifier import Classifier, read_classifier
from conductor_core.tiers.curve import Standing, Unit, at, curve, in_unit, suggested, unit_of, went_wrong
from storage.judgements import JudgementQuery

_SHARES = tuple(share / 10 for share in range(11))


def fit(
    cheap: Annotated[str, typer.Option(metavar="WORKER", help="The worker that easy requests are to go to.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where the fitted classifier goes (JSON).")],
    since: Since = None,
    given: options.DbJson = options.NONE,
) -> int:
    """An outcome is a request that WORKER alone and the Conductor have answered, with verdicts about both."""
    needs_extra("evaluate")
    from conductor_core.tiers import fitting, outcomes

    with given.store(read=True) as store:
        judgements = store.judgements.list(JudgementQuery(counting=True))
        found = outcomes.find(store, judgements, cheap, since)
        others = [] if found.rows else [each for each in outcomes.alone(store, judgements) if each != cheap]
    try:
        classifier = fitting.fit(found.rows, cheap, found.left_out)
    except BadInput as fault:
        known = [f"judged answers alone are of {one_line(', '.join(others), 200)}"] if others else []
        raise BadInput("; ".join((str(fault), *left_out_lines(found.left_out), *known))) from None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_whole(out, classifier.write())
    except OSError as error:
        raise BadInput(f"cannot write {one_line(str(out), 120)}: {error.strerror}") from error
    given.print(lambda: document(classifier, None), lambda: _fit_lines(classifier))
    listed = out.resolve().parent == (given.settings.data_folder / "tiers").resolve()
    page = "or the Tiers page" if listed else "the Tiers page lists files in tiers/ of the data folder"
    print(f"Next: conductor tiers curve {one_line(str(out), 120)}; {page}", file=sys.stderr)
    return 0


def curve_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What conductor tiers fit wrote.")],
    threshold: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Requests with this probability or more are easy. Default: the suggested one."),
    ] = None,
    given: options.Json = options.NONE,
) -> int:
    """Every figure is out of fold: by a classifier that had not seen the request."""
    classifier, _ = read_classifier(file)
    given.print(lambda: document(classifier, threshold), lambda: _curve_lines(classifier, threshold))
    return 0


def document(classifier: Classifier, threshold: float | None) -> dict[str, Any]:
    """Returns what was fitted, what a threshold would have done (None: the suggested one), and the whole curve."""
    unit = unit_of(classifier.outcomes)
    chosen = suggested(classifier.outcomes, unit) if threshold is None else threshold
    standing = at(classifier.outcomes, chosen, unit)
    return {
        "worker": classifier.worker,
        "outcomes": len(classifier.outcomes),
        "easy": sum(outcome.easy for outcome in classifier.outcomes),
        "fit": classifier.fit.model_dump(mode="json"),
        "unit": unit,
        "chosen": asdict(standing) | {"saved": standing.saved},
        "went_wrong": [outcome.model_dump() for outcome in went_wrong(classifier.outcomes, chosen)],
        "curve": [asdict(point) for point in curve(classifier.outcomes, unit)],
    }


def left_out_lines(left_out: Mapping[str, int]) -> list[str]:
    return [f"left out {count:,}: {one_line(reason, 120)}" for reason, count in left_out.items() if count]


def _fit_lines(classifier: Classifier) -> Iterator[str]:
    outcomes, fitted = classifier.outcomes, classifier.fit
    easy = sum(outcome.easy for outcome in outcomes)
    yield (
        f"fitted on {plural(len(outcomes), 'outcome')} from {fitted.first_utc:%Y-%m-%d} to {fitted.last_utc:%Y-%m-%d}: "
        f"{easy:,} easy for {one_line(classifier.worker, 80)}"
    )
    yield from left_out_lines(fitted.left_out)
    yield f"out of fold: AUC {fitted.auc:.2f}, log loss {fitted.log_loss:.3f}"
    unit = unit_of(outcomes)
    yield from _standing_lines(at(outcomes, suggested(outcomes, unit), unit), unit)


def _standing_lines(found: Standing, unit: Unit) -> Iterator[str]:
    quality, against = found.quality, found.against_conductor
    yield f"threshold {found.threshold:.3f}: {found.easy:.0%} of requests go to the cheap worker"
    yield (
        f"  cost of a request {in_unit(found.cost, unit)} ({in_unit(found.cost_low, unit)} to "
        f"{in_unit(found.cost_high, unit)}), {found.saved:.0%} less than the Conductor's "
        f"{in_unit(found.all_conductor.cost, unit)}"
    )
    yield (
        f"  good answers {quality.rate:.1%} ({quality.low:.1%} to {quality.high:.1%}), the Conductor's "
        f"{found.all_conductor.quality:.1%}: {100 * against.mean:+.1f} points ({100 * against.low:+.1f} to "
        f"{100 * against.high:+.1f})"
    )
    yield f"  by chance at the same cost {found.mixed:.1%}"


def _curve_lines(classifier: Classifier, threshold: float | None) -> Iterator[str]:
    unit = unit_of(classifier.outcomes)
    points = curve(classifier.outcomes, unit)
    rows = [("EASY", "THRESHOLD", "COST", "GOOD")]
    for share in _SHARES:
        point = min(points, key=lambda each: abs(each.easy - share))
        shown = "none" if point.threshold is None else f"{point.threshold:.3f}"
        rows.append((f"{point.easy:.0%}", shown, in_unit(point.cost, unit), f"{point.quality:.1%}"))
    yield from table(rows)
    chosen = suggested(classifier.outcomes, unit) if threshold is None else threshold
    yield ""
    yield from _standing_lines(at(classifier.outcomes, chosen, unit), unit)
    wrong = went_wrong(classifier.outcomes, chosen)
    if wrong:
        yield f"  {plural(len(wrong), 'request')} would have got a wrong answer that the Conductor had right:"
        yield from (f"    {each.cheap_run_id}  probability {each.probability:.2f}" for each in wrong[:5])
