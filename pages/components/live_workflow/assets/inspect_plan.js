// The tabs about the Conductor's work: its completion, its prompt, and its time, tokens and cost.

import { PACKED } from "./base.js"
import { consideredRows } from "./considered.js"
import { decisionLines, decisionState, isOfFile, saidBy } from "./decisions.js"
import { departureLines, retryLines } from "./departures.js"
import { copyButton, el, once, setText } from "./dom.js"
import { planRows } from "./figures.js"
import { caller, count, doing, pathKey, plural, seconds } from "./format.js"
import { messageList } from "./inspect_step.js"
import { clientWords } from "./outcome.js"
import { isolated, visible } from "./text.js"

export const planTabs = { Plan: plan, Prompt: prompt, Cost: cost }
export const innerPlanTabs = { Plan: plan, Prompt: prompt }

// Returns the round to show: the one that the selected step opened, or else the first.
const roundOf = (model, step) => model.rounds.get(step ? pathKey(step.path) : "")

function plan(body) {
  let raw = ""
  const state = el("div", { class: "notice" })
  const reasoningText = el("div", { class: "raw", dir: "auto" })
  const reasoningTitle = el("summary", {}, "Reasoning")
  const reasoning = el("details", { class: "reasoning" }, reasoningTitle, reasoningText)
  const lists = el("pre", { class: "raw plan-text" })
  const bar = el(
    "div",
    { class: "tools" },
    el("b", {}, "As written"),
    el("span", { class: "spring" }),
    copyButton("Copy what the Conductor wrote", () => raw),
  )
  const considered = el("section", {})
  const rejected = el("div", {})
  const decisions = el("div", { class: "decisions" })
  body.append(state, decisions, considered, bar, reasoning, lists, rejected)
  return (model, step) => {
    const round = roundOf(model, step)
    raw = round?.raw ?? ""
    const writing = !model.ended && round?.status === "planning"
    const parts = splitReasoning(raw, writing)
    // The reasoning that its server sent separately, and the text before its lists.
    const thoughts = [round?.reasoning, parts.reasoning].filter(Boolean).join("\n\n")
    reasoning.hidden = !thoughts
    // What it writes before its plan is seen at once, and folded away when the plan comes.
    const before = writing && !parts.lists && Boolean(raw)
    if (before !== reasoning.before) reasoning.open = reasoning.before = before
    setText(reasoningTitle, thoughts && writing && !parts.lists ? "Reasoning…" : "Reasoning")
    setText(reasoningText, visible(thoughts))
    setText(lists, visible(parts.lists))
    bar.hidden = !raw
    lists.hidden = !parts.lists
    lists.classList.toggle("streaming", writing)
    once(
      state,
      JSON.stringify([
        round?.status,
        round?.source,
        round?.duration_ms,
        round?.rejected.length,
        round?.retries?.length,
        model.run?.status,
        raw === "",
        model.edited === null,
        !round?.reasoning,
        round?.progress,
      ]),
      () => planState(model, round),
    )
    once(considered, JSON.stringify([round?.path, round?.considered]), () => consideredRows(model, round))
    const approvals = round?.path.length ? [] : (model.run?.approvals ?? [])
    once(decisions, decisionState(approvals), () =>
      approvals.length ? [el("b", {}, "Approvals"), ...decisionLines(approvals, model.run)] : [],
    )
    once(rejected, round?.rejected.length ?? 0, () => (round?.rejected ?? []).map(rejectedAttempt))
  }
}

const WRITING = "Writing; steps appear in the graph as they can be read."

function planState(model, round) {
  if (!round && model.edited)
    return [el("p", { class: "muted" }, "Nothing of this plan has run. Choose a step to read what it is told.")]
  if (!round) return [el("p", { class: "muted" }, "The Conductor's writing appears here as it happens.")]
  const lines = []
  if (!model.ended && round.status === "planning")
    lines.push(
      el(
        "p",
        { class: "muted" },
        round.progress
          ? `${doing(round.progress)}…`
          : !round.raw && round.reasoning
            ? "Reasoning before it writes the plan…"
            : round.raw
              ? WRITING
              : "Reading the task…",
      ),
    )
  for (const line of retryLines(round, visible)) lines.push(el("p", { class: "warn" }, line))
  if (round.source === "conductor")
    lines.push(
      el(
        "p",
        {},
        `✓ ${plural(round.workflow?.steps.length ?? 0, "step")} · ${round.topology} · written in ${seconds(round.duration_ms)}` +
          (round.precision ? ` · weights in ${visible(round.precision)}` : ""),
      ),
    )
  if (round.source === "file") lines.push(el("p", {}, "This plan was given, not written by a Conductor."))
  if (round.source === "parent") lines.push(reusedFrom(model.run?.parent_run_id))
  if (round.edited_by)
    lines.push(el("p", {}, `✎ edited by ${visible(caller(round.edited_by))}${saidBy(isOfFile(model.run))}`))
  const out = round.path.length ? [] : (model.run?.pool.excluded ?? [])
  if (out.length) lines.push(el("p", {}, `⊘ left out of the pool: ${visible(out.join(", "))}`))
  for (const repair of round.repairs) lines.push(el("p", { class: "warn" }, `⚒ repaired: ${visible(repair)}`))
  for (const fault of round.warnings) lines.push(el("p", { class: "warn" }, `△ ${visible(fault.message)}`))
  for (const { kind, text } of departureLines(round, visible)) lines.push(el("p", { class: kind }, text))
  if (!round.path.length && model.run?.client) lines.push(...clientLines(model.run))
  if (round.status === "unfinished" && round.messages.length)
    lines.push(el("p", { class: "muted" }, "The run ended before this plan was finished."))
  if (round.status === "rejected") lines.push(el("p", { class: "bad" }, "✕ This plan could not be used."))
  return lines
}

// How the request came, and what it demands beside its task.
function clientLines(run) {
  const { tools, tool_choice: choice, rules } = run
  const named = tools.map(({ name }) => isolated(name)).join(", ")
  const forms = { json: "a JSON object", schema: `JSON by the schema ${isolated(rules.schema_name) || "given"}` }
  const demands = [forms[rules.form], rules.max_tokens && `at most ${count(rules.max_tokens)} tokens`].filter(Boolean)
  return [
    `⇥ asked through the endpoint: ${clientWords(run)}`,
    named && `⚒ the client’s tools: ${named}${choice === "auto" ? "" : `; choice: ${visible(choice)}`}`,
    demands.length && `▭ the answer has to be ${demands.join(", ")}`,
  ]
    .filter(Boolean)
    .map((line) => el("p", { dir: "auto" }, line))
}

function reusedFrom(runId) {
  if (!runId) return el("p", {}, "This plan comes from an earlier run.")
  const shown = visible(runId)
  if (PACKED) return el("p", {}, `Plan reused from run ${shown}`)
  const open = el("a", { href: `run?run=${encodeURIComponent(runId)}`, target: "_self" }, "open it")
  return el("p", {}, `Plan reused from run ${shown} · `, open)
}

function rejectedAttempt({ attempt, raw, reasoning, faults }) {
  return el(
    "details",
    { class: "rejected", open: true },
    el("summary", {}, `Attempt ${attempt} rejected: ${plural(faults.length, "fault")}`),
    ...faults.map((fault) =>
      el("p", { class: "bad" }, `✕ ${visible(fault.message)}${fault.line ? ` (line ${fault.line})` : ""}`),
    ),
    reasoning &&
      reasoning !== raw &&
      el(
        "details",
        { class: "reasoning" },
        el("summary", {}, "Reasoning"),
        el("div", { class: "raw", dir: "auto" }, visible(reasoning)),
      ),
    el("pre", { class: "raw", dir: "auto" }, visible(raw)),
  )
}

// The lists begin at the first of their names; the text before them is the model's thinking.
function splitReasoning(raw, writing) {
  const match = /(^|\n)[ \t]*(```[a-z]*\s*\n)?[ \t]*model_id\s*=/.exec(raw)
  if (!match) return writing ? { reasoning: raw, lists: "" } : { reasoning: "", lists: raw }
  return { reasoning: raw.slice(0, match.index).trim(), lists: raw.slice(match.index).trim() }
}

function prompt(body, { onRead }) {
  const list = el("div", { class: "messages" })
  body.append(list)
  return (model, step) => {
    const sent = roundOf(model, step)?.messages ?? []
    once(list, `${model.run?.run_id}|${step?.path}|${sent.length}`, () =>
      sent.length
        ? messageList(sent, "Exactly as sent", onRead)
        : [el("p", { class: "muted" }, "No Conductor was asked.")],
    )
  }
}

function cost(body) {
  const table = el("dl", { class: "figures-list" })
  body.append(table)
  return (model, step) => {
    const rows = planRows(model, roundOf(model, step))
    once(table, JSON.stringify(rows), () =>
      rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", { class: "number" }, visible(value))]),
    )
  }
}
