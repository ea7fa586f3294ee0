"""``compare``: two runs in detail, more as a table."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from conductor_core.analysis import compare as comparing
from conductor_core.analysis.conclusion import concluded
from conductor_core.analysis.text_diff import TextDifference, compare_texts, shortened
from conductor_core.cli import options
from conductor_core.cli.export import Redact, html_of_comparison
from conductor_core.cli.output import one_line, print_written, table, write_file
from conductor_core.errors import BadInput
from conductor_core.formats import run_word, seconds
from conductor_core.run.actor import local_caller
from conductor_core.run.costs import cost_so_far
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import label, round_name
from conductor_core.text import plain

_MARKS = {"removed": ("[-", "-]"), "added": ("{+", "+}"), "same": ("", "")}
"""As ``git diff --word-diff`` has them."""


def compare_command(
    run_ids: Annotated[
        list[str], typer.Argument(metavar="A [B...]", help="Two or more runs, or one with rounds: ids, or beginnings.")
    ],
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write it as a page that opens without a server.")
    ] = None,
    redact: Redact = None,
    given: options.DbJson = options.NONE,
) -> int:
    """Two runs are compared in detail, more as a table against the first.

    Of one run in which a step asked the Conductor again, each round is compared with the one before.

    The page of --html holds the whole runs, too; import reads them. Keys are always hidden in it.
    """
    if html is not None and len(run_ids) == 1:
        raise BadInput("--html writes a comparison of two or more runs")
    if redact and html is None:
        raise BadInput("--redact hides words in a page: use it with --html FILE")
    with given.reading() as store:
        found = [store.resolve(run_id) for run_id in run_ids]
        if twice := sorted({run_id for run_id in found if found.count(run_id) > 1}):
            raise BadInput(f"run {twice[0]} is named twice; give different runs to compare")
        traces = [store.trace(run_id)[0] for run_id in found]
        if len(traces) == 1 and not comparing.opened_rounds(traces[0]):
            raise BadInput(f"run {found[0]} has one round only; give two or more runs to compare")
        page = None if html is None else html_of_comparison(store, found, redact or ())
        caller = local_caller("cli")
        store.access_log.viewed(found, "compare", caller)
        if page is not None:
            store.access_log.exported(found, "comparison", caller)
    if html is not None and page is not None:
        write_file(html, page)
        print_written([html])
    if len(traces) == 1:
        given.print(lambda: comparing.rounds_document(traces[0]), lambda: _rounds_lines(traces[0]))
    else:
        given.print(
            lambda: comparing.comparison_document(traces),
            lambda: (
                _pair_lines(comparing.compare_runs(traces[0], traces[1])) if len(traces) == 2 else _table_lines(traces)
            ),
        )
    return 0


def _rounds_lines(trace: RunTrace) -> Iterator[str]:
    for place, path in enumerate(comparing.opened_rounds(trace)):
        yield from ("", "") if place else ()
        yield f"{round_name(path)}, opened by step {label(path)}, beside {round_name(path[:-1])}"
        if comparing.kept_answer(trace, path):
            yield "The Conductor wrote three empty lists: the answer stays as it was."
        else:
            yield from _pair_lines(comparing.compare_rounds(trace, path))


def _pair_lines(compared: comparing.RunsCompared) -> Iterator[str]:
    named = list(zip(compared.names, (compared.a, compared.b), strict=True))
    for name, trace in named:
        yield f"{name}  {_run_line(trace, compared)}"
    yield from ("", one_line(comparing.headline(compared), 1000), "")
    for name, trace in named:
        said = concluded(trace)
        what = "answer" if said is None or said.headline else "text"
        yield f"{what} {name}{' (simulated)' if trace.simulated else ''}: {_conclusion(trace)}"
    yield from ("", f"plan: {comparing.count(comparing.plan_change_count(compared), 'change')}")
    yield from (f"  {one_line(sentence, 400)}" for sentence in comparing.plan_sentences(compared))
    yield from ("", "steps")
    yield from _step_lines(compared.root, compared.names)
    first = compared.first_difference
    yield from ("", f"first difference: {'none' if first is None else f'step {first.label}'}")


def _run_line(trace: RunTrace, compared: comparing.RunsCompared) -> str:
    other = compared.b if trace is compared.a else compared.a
    parent = " · re-run of the other" if trace.parent_run_id == other.run_id else ""
    spent = f"{trace.usage.total_tokens} tokens · {cost_so_far(trace).in_line} · {seconds(trace.duration_ms)}"
    return f"{trace.run_id} · {run_word(trace.status)}{parent} · {spent} · {one_line(trace.task, 80)}"


def _conclusion(trace: RunTrace) -> str:
    said = concluded(trace)
    return f"none ({run_word(trace.status)})" if said is None else one_line(said.text or "empty", 300)


def _step_lines(rounds: comparing.RoundsCompared, names: comparing.Names, indent: str = "  ") -> Iterator[str]:
    width = max((len(pair.label) for pair in rounds.pairs), default=0)
    for pair in rounds.pairs:
        agents = one_line(comparing.agents_of(pair), 60)
        said = comparing.output_words(pair, names)
        yield f"{indent}{pair.label:<{width}}  {agents} · plan {comparing.plan_word(pair)} · output {said}"
        inner = f"{indent}    "
        for difference in pair.plan:
            for name, before, after in comparing.part_words(difference):
                if name != "agent":
                    yield from _text_lines(compare_texts(before, after), f"{inner}{name}: ")
        if pair.a is not None and pair.b is not None and pair.output_changed:
            yield from _text_lines(compare_texts(pair.a.output, pair.b.output), f"{inner}output: ")
        if pair.inner is not None:
            yield from _step_lines(pair.inner, names, inner)


def _text_lines(difference: TextDifference, head: str) -> Iterator[str]:
    text = "".join(
        f" [... {part.words} {'' if part.of == 'same' else f'{part.of} '}words ...] "
        if part.kind == "skipped"
        else f"{_MARKS[part.kind][0]}{plain(part.text)}{_MARKS[part.kind][1]}"
        for part in shortened(difference)
    )
    if difference.by != "word":
        yield f"{head}(long texts: compared by {'line' if difference.by == 'line' else 'their ends'})"
        head = " " * len(head)
    first, *rest = text.split("\n")
    yield f"{head}{first}".rstrip()
    yield from (f"{' ' * len(head)}{line}".rstrip() for line in rest)


def _table_lines(traces: Sequence[RunTrace]) -> list[str]:
    """Returns a table of runs. What changed is said against the first of them."""
    rows = [("", "RUN", "STATUS", "STEPS", "PLAN", "FIRST DIFFERENCE", "TOKENS", "COST", "TIME", "ANSWER")]
    for place, trace in enumerate(traces):
        compared = None if place == 0 else comparing.compare_runs(traces[0], trace)
        first = None if compared is None else compared.first_difference
        rows.append(
            (
                comparing.letter(place),
                trace.run_id,
                run_word(trace.status),
                str(len(trace.steps)),
                "" if compared is None else comparing.count(comparing.plan_change_count(compared), "change"),
                "" if compared is None else "none" if first is None else f"step {label(first.shown.path)}",
                str(trace.usage.total_tokens),
                str(cost_so_far(trace)),
                seconds(trace.duration_ms),
                one_line(_conclusion(trace), 60),
            )
        )
    return table(rows)
