// The turns of a step whose worker called the client's tools: what it said beside, each call, and what came back.

import { copyButton, el, once, setText } from "./dom.js"
import { count, seconds, tokens, usdInLine } from "./format.js"
import { inLines, isJson } from "./json_text.js"
import { isolated, renderMarkdown, visible } from "./text.js"

// So many lines and characters of a text are open at once; of more, its beginning.
const FEW_LINES = 8
const FEW = 800
const SPARE_LINES = 4 // fewer lines than these are not hidden behind a button
const WHOLE = 40_000

// Returns the function that brings the turns of a step up to date. Those that are over are not drawn again.
export function turnList(body, { onRead }) {
  let of = ""
  return (model, step) => {
    const turns = step.turns ?? []
    const run = `${model.run?.run_id}/${step.path}`
    if (of !== run) body.replaceChildren()
    of = run
    while (body.children.length > turns.length) body.lastChild.remove()
    while (body.children.length < turns.length) body.append(el("section", { class: "turn" }))
    body.hidden = turns.length === 0
    turns.forEach((turn, index) => {
      const state = `${turn.results !== null}|${step.status}`
      once(body.children[index], state, () => turnParts(step, turn, index, onRead))
    })
    bring(body, step.status === "running" ? turns.length : 0)
  }
}

// Scrolls the panel to a turn that has just come, unless somebody reads there.
function bring(body, number) {
  const scroller = body.closest(".inspector-scroll")
  const comes = number > 1 && body.brought !== number
  body.brought = number
  if (comes && scroller && !scroller.matches(":hover, :focus-within"))
    scroller.scrollTop = body.lastChild.offsetTop - scroller.offsetTop
}

function turnParts(step, turn, index, onRead) {
  const results = new Map((turn.results ?? []).map((result) => [result.call_id, result]))
  const agent = turn.agent && turn.agent !== step.agent ? ` · ${isolated(turn.agent)}` : ""
  const waits = step.status === "running" && turn.results === null
  return [
    el("header", {}, el("b", {}, `Turn ${index + 1}${agent}`), el("span", { class: "muted number" }, spent(turn))),
    turn.text.trim() ? said(turn.text) : null,
    ...turn.calls.map((call) => [
      callBox(call, onRead),
      turn.results === null ? openCall(turn, waits) : resultBox(results.get(call.call_id), onRead, tookMs(turn)),
    ]),
    turn.said.trim()
      ? el("div", { class: "added" }, el("p", { class: "muted small" }, "The client added"), said(turn.said))
      : null,
    turn.anew ? toldAnew(turn.anew) : null,
  ]
    .flat()
    .filter(Boolean)
}

// What the client told the run anew, as a handoff to another agent does: it holds from the next call on.
function toldAnew({ system, tools }) {
  const named = tools.map((tool) => isolated(tool.name)).join(", ") || "none"
  return el(
    "div",
    { class: "added" },
    el("p", { class: "muted small" }, `From here on · tools: ${named}`),
    system.trim() ? said(system) : el("p", { class: "muted small" }, "No system text"),
  )
}

const spent = ({ usage, cost_usd }) =>
  `${usage.estimated ? "≈ " : ""}${tokens(usage.input_tokens + usage.output_tokens)} · ${usdInLine(cost_usd)}`

function said(text) {
  const prose = el("div", { class: "prose", dir: "auto" })
  prose.append(renderMarkdown(text.slice(0, WHOLE)))
  return prose
}

function openCall(turn, waits) {
  const at = turn.called_at_utc
  const since = at ? ` since ${new Date(at).toLocaleTimeString([], { timeStyle: "medium" })}` : ""
  return el(
    "p",
    { class: `result-line ${waits ? "warn" : "muted"}` },
    waits ? `⚒ Waits for the client${since}` : "No result came before the run ended.",
  )
}

// Tools take the client's time, in which the run's clock stands.
function tookMs({ called_at_utc: called, returned_at_utc: returned }) {
  return called && returned ? Math.max(0, new Date(returned) - new Date(called)) : null
}

// A call of a tool: its name, and what it was given, in lines where that is JSON. What is copied is as it was written.
export function callBox({ name, arguments: given, call_id: id }, onRead) {
  return el(
    "div",
    { class: "tool-call", title: id ? `Call ${visible(id)}` : null },
    el(
      "header",
      {},
      el("span", { class: "tool-sign", "aria-hidden": "true" }, "⚒"),
      el("b", { class: "tool-name" }, isolated(name)),
      el("span", { class: "spring" }),
      given ? copyButton(`Copy the arguments of ${visible(name)}`, () => given) : null,
    ),
    given ? folded(given, `Arguments of ${isolated(name)}`, onRead) : el("p", { class: "muted small" }, "no arguments"),
  )
}

// What a tool brought; one that failed says so.
export function resultBox(result, onRead, ms = null) {
  const { text, is_error: failed } = result
  const words = failed ? "✕ Error" : "Result"
  return el(
    "div",
    { class: failed ? "tool-result error" : "tool-result" },
    el(
      "header",
      {},
      el("b", {}, words),
      el("span", { class: "muted number" }, ms === null ? "" : `after ${seconds(ms)}`),
      el("span", { class: "spring" }),
      text ? copyButton("Copy the result", () => text) : null,
    ),
    text.trim() ? folded(text, words, onRead) : el("p", { class: "muted small" }, "It brought nothing."),
  )
}

// A text of which a long one is folded to its beginning, and opens in place; the reader has one that is longer still.
export function folded(text, title, onRead, { lines: few = FEW_LINES } = {}) {
  const shown = text.length <= WHOLE && isJson(text) ? inLines(text) : text
  const lines = shown.split("\n")
  const pre = el("pre", { class: "raw", dir: "auto" })
  const most = lines.slice(0, few).join("\n").slice(0, FEW)
  if (lines.length <= few + SPARE_LINES && shown.length <= FEW) {
    setText(pre, visible(shown))
    return pre
  }
  const more = el("button", { type: "button", class: "more" })
  let open = false
  const draw = () => {
    const all = lines.length > few ? `Show all ${count(lines.length)} lines` : "Show all"
    setText(pre, visible(open ? shown.slice(0, WHOLE) : `${most.trimEnd()} …`))
    setText(more, open ? (shown.length > WHOLE ? "Read all of it" : "Fold") : all)
    more.setAttribute("aria-expanded", open ? "true" : "false")
  }
  more.addEventListener("click", () => {
    if (open && shown.length > WHOLE) return onRead({ title, text, name: "text" })
    open = !open
    draw()
  })
  draw()
  return el("div", { class: "folded" }, pre, more)
}
